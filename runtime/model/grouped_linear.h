// Several linear layers as one operation: rows [first rows of expert 0 | rows of expert 1 | …] times a weight each.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace taut::model {

/// `input` [rows, in]; the first rows_per_group[0] rows are multiplied by weights[0]ᵀ [out, in], the next by
/// weights[1]ᵀ and so on; the counts sum to `rows`, and any of them may be 0. Returns [rows, out] in the input's type,
/// which the weights must have. Backward gives every weight a gradient, zeros where its group was empty: hooks on the
/// weights run in every backward, in the same order on every rank.
at::Tensor grouped_linear(const at::Tensor& input, const std::vector<at::Tensor>& weights,
                          const std::vector<int64_t>& rows_per_group);

}  // namespace taut::model
