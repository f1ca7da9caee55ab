#include "runtime/optim/adamw.h"

#include <ATen/Parallel.h>

#include "kernels/adamw.h"

namespace taut::optim {

AdamW::AdamW(parallel::FlatParameters& flat, const config::OptimizerParams& params)
    : moment1(at::zeros_like(flat.values)), moment2(at::zeros_like(flat.values)), flat_(flat), params_(params) {
  for (const parallel::Span& span : flat_.spans) {
    const bool decay = flat_.parameters[span.parameter].decay;
    if (ranges_.empty() || ranges_.back().decay != decay) ranges_.push_back({span.offset, 0, decay});
    ranges_.back().count = span.offset + span.count - ranges_.back().offset;  // gaps between spans are zero: harmless
  }
}

void AdamW::step(double lr, double gradient_scale) {
  ++steps;
  float* p = flat_.values.data_ptr<float>();
  const float* g = flat_.gradients.const_data_ptr<float>();
  float *m = moment1.data_ptr<float>(), *v = moment2.data_ptr<float>();
  for (const Range& range : ranges_) {
    const kernels::AdamWStep how{lr,
                                 params_.betas.first,
                                 params_.betas.second,
                                 params_.eps,
                                 range.decay ? params_.weight_decay : 0.0,
                                 gradient_scale,
                                 steps};
    const int64_t at = range.offset;
    if (flat_.values.is_cuda()) {
      // Everything runs on the default stream, which is stream 0.
      kernels::adamw_cuda(p + at, g + at, m + at, v + at, range.count, how, nullptr);
      continue;
    }
    constexpr int64_t kElementsPerTask = 1 << 16;
    at::parallel_for(0, range.count, kElementsPerTask, [&](int64_t first, int64_t last) {
      kernels::adamw_cpu(p + at + first, g + at + first, m + at + first, v + at + first, last - first, how);
    });
  }
}

}  // namespace taut::optim
