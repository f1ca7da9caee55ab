// Two steps of the model as single autograd operations: one pass over memory each way instead of seven.
#pragma once

#include <torch/types.h>

namespace taut::model {

/// RMSNorm (Zhang & Sennrich, arXiv 1910.07467) over the last dimension: x / sqrt(mean(x²) + epsilon) · weight.
/// fp32 in and out.
at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon);

/// Rotary position embedding (Su et al., arXiv 2104.09864) of `input` [batch, seq, heads, head_dim], fp32 or bf16:
/// out[i] = x[i]·cos − x[i + half]·sin, out[i + half] = x[i + half]·cos + x[i]·sin for i < half = head_dim / 2.
/// `cos`, `sin` are fp32 [seq, half]. Computed in fp32, returned packed in the input's type.
at::Tensor rope(const at::Tensor& input, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace taut::model
