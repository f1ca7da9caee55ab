// AdamW over the slices of the parameter buckets that this rank owns: everything without ZeRO, an N-th with it. Moments
// are fp32 and lie at the same offsets as the slice.
//
// Offloaded (ZeRO-Offload; Ren et al., arXiv 2101.06840) the moments, a master copy of the weights and the gradients
// live in host memory, pinned if asked: gradients are copied there as their buckets are reduced, the update runs on the
// CPU, the new weights are copied back. On a CPU-only machine the copies are made all the same.
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
  AdamW(parallel::FlatParameters& flat, const config::OptimizerParams& params, const config::OffloadOptimizer& offload);

  /// The bucket's own_gradients are complete: starts their copy to the host when offloaded.
  void gradients_ready(size_t bucket);
  /// Before the first update of a step: counts the step and waits for the copies.
  void begin_step();
  /// Updates the bucket's own_values from its own_gradients · gradient_scale.
  void update(size_t bucket, double lr, double gradient_scale);
  /// The weights have been changed from outside (a checkpoint): renews the master copies.
  void reload_weights();

  struct Moments {
    at::Tensor first, second;  // [own_count] fp32, on the host when offloaded
  };
  std::vector<Moments> moments;  // per bucket
  int64_t steps = 0;             // updates made so far

 private:
  struct Range {
    int64_t offset = 0, count = 0;
    bool decay = true;
  };
  struct HostCopy {
    at::Tensor values, gradients;  // [own_count] fp32
  };
  std::vector<Range> ranges_of(const parallel::Bucket& bucket) const;

  parallel::FlatParameters& flat_;
  config::OptimizerParams params_;
  std::vector<std::vector<Range>> ranges_;  // per bucket, within the own slice
  std::vector<HostCopy> host_;              // per bucket when offloaded, else empty
};

}  // namespace taut::optim
