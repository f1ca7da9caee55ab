// The mixture of experts written down token by token, in double: what runtime/model/moe must equal on every layout.
#pragma once

#include <torch/types.h>

#include <map>
#include <string>
#include <vector>

#include "runtime/config/config.h"

namespace taut::testing {

struct MoeReference {
  std::map<std::string, at::Tensor> parameters;  // full leaves, double, by their names without "layers.0.moe."
  std::vector<int64_t> tokens, dropped;          // per expert, over all calls

  /// One microbatch `x` [batch, seq, hidden]; `aux` becomes the sum of its auxiliary losses, coefficients included.
  at::Tensor forward(const config::Model& shape, const at::Tensor& x, at::Tensor& aux);
};

}  // namespace taut::testing
