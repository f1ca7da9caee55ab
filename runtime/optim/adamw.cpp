#include "runtime/optim/adamw.h"

#include <ATen/Parallel.h>
#include <torch/cuda.h>

#include <algorithm>

#include "kernels/adamw.h"

namespace taut::optim {

AdamW::AdamW(parallel::FlatParameters& flat, const config::OptimizerParams& params,
             const config::OffloadOptimizer& offload)
    : flat_(flat), params_(params) {
  const bool offloaded = offload.device == config::OffloadDevice::cpu;
  for (const parallel::Bucket& bucket : flat_.buckets) {
    ranges_.push_back(ranges_of(bucket));
    auto options = bucket.own_values.options();
    if (offloaded) {
      options = options.device(at::kCPU).pinned_memory(bucket.own_values.is_cuda() && offload.pin_memory);
      host_.push_back({at::empty_like(bucket.own_values, options), at::empty_like(bucket.own_values, options)});
      host_.back().values.copy_(bucket.own_values);
    }
    moments.push_back({at::zeros({bucket.own_count()}, options), at::zeros({bucket.own_count()}, options)});
  }
}

std::vector<AdamW::Range> AdamW::ranges_of(const parallel::Bucket& bucket) const {
  std::vector<Range> ranges;
  const int64_t own_first = bucket.own_offset(), own_last = own_first + bucket.own_count();
  for (const parallel::Span& span : bucket.spans) {
    const int64_t first = std::max(span.offset, own_first), last = std::min(span.offset + span.count, own_last);
    if (first >= last) continue;
    const bool decay = flat_.parameters[span.parameter].decay;
    if (ranges.empty() || ranges.back().decay != decay) ranges.push_back({first - own_first, 0, decay});
    ranges.back().count = last - own_first - ranges.back().offset;  // gaps between spans are zero: harmless
  }
  return ranges;
}

void AdamW::gradients_ready(size_t bucket) {
  if (host_.empty()) return;
  host_[bucket].gradients.copy_(flat_.buckets[bucket].own_gradients, /*non_blocking=*/true);
}

void AdamW::begin_step() {
  ++steps;
  if (!host_.empty() && flat_.buckets.front().own_values.is_cuda()) torch::cuda::synchronize();
}

void AdamW::update(size_t index, double lr, double gradient_scale) {
  const parallel::Bucket& bucket = flat_.buckets[index];
  const at::Tensor& values = host_.empty() ? bucket.own_values : host_[index].values;
  const at::Tensor& gradients = host_.empty() ? bucket.own_gradients : host_[index].gradients;
  float* p = values.data_ptr<float>();
  const float* g = gradients.const_data_ptr<float>();
  float *m = moments[index].first.data_ptr<float>(), *v = moments[index].second.data_ptr<float>();
  for (const Range& range : ranges_[index]) {
    const kernels::AdamWStep how{lr,
                                 params_.betas.first,
                                 params_.betas.second,
                                 params_.eps,
                                 range.decay ? params_.weight_decay : 0.0,
                                 gradient_scale,
                                 steps};
    const int64_t at = range.offset;
    if (values.is_cuda()) {
      // Everything runs on the default stream, which is stream 0.
      kernels::adamw_cuda(p + at, g + at, m + at, v + at, range.count, how, nullptr);
      continue;
    }
    constexpr int64_t kElementsPerTask = 1 << 16;
    at::parallel_for(0, range.count, kElementsPerTask, [&](int64_t first, int64_t last) {
      kernels::adamw_cpu(p + at + first, g + at + first, m + at + first, v + at + first, last - first, how);
    });
  }
  if (!host_.empty()) bucket.own_values.copy_(values, /*non_blocking=*/true);
}

void AdamW::reload_weights() {
  for (size_t i = 0; i < host_.size(); ++i) host_[i].values.copy_(flat_.buckets[i].own_values);
}

}  // namespace taut::optim
