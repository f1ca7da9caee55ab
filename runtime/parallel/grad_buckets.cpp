#include "runtime/parallel/grad_buckets.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>
#include <string>

namespace taut::parallel {
namespace {

/// Runs when autograd has added a parameter's gradient to its .grad.
struct AfterAccumulation : torch::autograd::PostAccumulateGradHook {
  explicit AfterAccumulation(std::function<void()> call) : call(std::move(call)) {}
  void operator()(const torch::autograd::Variable&) override { call(); }
  std::function<void()> call;
};

}  // namespace

int64_t bucket_bytes(const BucketSettings& settings, int64_t gradient_bytes) {
  constexpr int64_t kMiB = 1 << 20;
  if (settings.bucket_size_mb) return std::max<int64_t>(4, static_cast<int64_t>(*settings.bucket_size_mb * kMiB));
  return std::clamp(gradient_bytes / 8, kMiB, 25 * kMiB);
}

GradBuckets::GradBuckets(FlatParameters& flat, comm::Group& dp, const BucketSettings& settings)
    : flat_(flat), dp_(dp), overlap_(settings.overlap) {
  if (dp_.size() == 1) return;
  const int64_t limit = bucket_bytes(settings, flat_.gradients.nbytes()) / 4;
  std::vector<std::pair<int64_t, int64_t>> ranges;  // [first, last) in elements
  for (const Span& span : flat_.spans) {
    const int64_t end = span.offset + span.count;
    if (ranges.empty() || end - ranges.back().first > limit) {
      ranges.emplace_back(span.offset, end);
      buckets_.emplace_back();
    }
    ranges.back().second = end;
    const size_t bucket = buckets_.size() - 1;
    ++buckets_[bucket].parameters;
    torch::autograd::impl::set_post_acc_grad_hooks(
        flat_.parameters[span.parameter].value,
        std::make_unique<AfterAccumulation>([this, bucket] { gradient_ready(bucket); }));
  }
  for (size_t i = 0; i < buckets_.size(); ++i) {
    buckets_[i].gradients = flat_.gradients.narrow(0, ranges[i].first, ranges[i].second - ranges[i].first);
    buckets_[i].content_id = comm::content_id("gradients." + dp_.name() + ".bucket" + std::to_string(i));
  }
}

GradBuckets::~GradBuckets() {
  if (buckets_.empty()) return;
  for (Parameter& parameter : flat_.parameters) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter.value, nullptr);
  }
}

void GradBuckets::begin_step(int64_t step) {
  const at::NoGradGuard no_grad;
  flat_.gradients.zero_();
  step_ = step;
  last_backward_ = false;
  next_to_reduce_ = 0;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters;
}

void GradBuckets::expect_last_backward() {
  last_backward_ = true;
}

void GradBuckets::gradient_ready(size_t bucket) {
  if (!last_backward_) return;
  --buckets_[bucket].missing;
  if (overlap_) reduce_ready_buckets();
}

comm::ContentTag GradBuckets::tag_of(const Bucket& bucket) const {
  return {bucket.content_id, step_, comm::Reason::gradient,
          bucket.gradients.storage_offset() - flat_.gradients.storage_offset(), bucket.gradients.numel()};
}

void GradBuckets::reduce_ready_buckets() {
  while (next_to_reduce_ < buckets_.size() && buckets_[next_to_reduce_].missing <= 0) {
    Bucket& bucket = buckets_[next_to_reduce_++];
    bucket.handle = comm::all_reduce_async(dp_, bucket.gradients, comm::Reduce::sum, tag_of(bucket));
  }
}

void GradBuckets::finish() {
  if (!overlap_) {
    for (Bucket& bucket : buckets_) {
      comm::all_reduce(dp_, bucket.gradients, comm::Reduce::sum, tag_of(bucket));
    }
    return;
  }
  for (Bucket& bucket : buckets_) bucket.missing = 0;
  reduce_ready_buckets();
  for (Bucket& bucket : buckets_) bucket.handle.wait();
}

}  // namespace taut::parallel
