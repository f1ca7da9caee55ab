// AdamW over the flat buffers of one rank. Moments are fp32 and lie at the same offsets as the parameters.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "runtime/config/config.h"
#include "runtime/parallel/flat_parameters.h"

namespace taut::optim {

class AdamW {
 public:
  /// `flat` must outlive the optimizer. Weight decay acts on matrices, not on norms' weights and biases
  /// (Parameter::decay).
  AdamW(parallel::FlatParameters& flat, const config::OptimizerParams& params);

  /// One update from FlatParameters::gradients · gradient_scale.
  void step(double lr, double gradient_scale);

  at::Tensor moment1, moment2;  // [total] fp32
  int64_t steps = 0;            // updates made so far

 private:
  struct Range {
    int64_t offset = 0, count = 0;
    bool decay = true;
  };
  parallel::FlatParameters& flat_;
  config::OptimizerParams params_;
  std::vector<Range> ranges_;
};

}  // namespace taut::optim
