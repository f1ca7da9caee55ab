#include "runtime/parallel/gradient_reduction.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "taut.h"

namespace taut::parallel {
namespace {

// ZeRO 2 and 3: full buckets that travel while the next one fills.
constexpr size_t kMostUnderWay = 2;

/// Runs when autograd has added a parameter's gradient to its .grad.
struct AfterAccumulation : torch::autograd::PostAccumulateGradHook {
  explicit AfterAccumulation(std::function<void()> call) : call(std::move(call)) {}
  void operator()(const torch::autograd::Variable&) override { call(); }
  std::function<void()> call;
};

}  // namespace

int64_t bucket_elements(std::optional<double> bucket_size_mb, int64_t gradient_bytes) {
  constexpr int64_t kMiB = 1 << 20;
  if (bucket_size_mb) return std::max<int64_t>(1, static_cast<int64_t>(*bucket_size_mb * kMiB) / 4);
  return std::clamp(gradient_bytes / 8, kMiB, 25 * kMiB) / 4;
}

GradientReduction::GradientReduction(FlatParameters& flat, const ReductionSettings& settings)
    : flat_(flat), settings_(settings), states_(flat.buckets.size()) {
  for (size_t i = 0; i < flat_.buckets.size(); ++i) {
    const Bucket& bucket = flat_.buckets[i];
    if (!bucket.group || bucket.group->size() == 1) continue;
    const auto chunk = static_cast<size_t>(bucket.chunk);
    if (order_.size() <= chunk) order_.resize(chunk + 1);
    order_[chunk].push_back(i);
    states_[i].missing = gradients_until_reduction(bucket);
    for (const Span& span : bucket.spans) {
      torch::autograd::impl::set_post_acc_grad_hooks(
          flat_.parameters[span.parameter].value,
          std::make_unique<AfterAccumulation>([this, i, span] { gradient_ready(i, span); }));
    }
  }
  next_.resize(order_.size());
}

GradientReduction::~GradientReduction() {
  for (Parameter& parameter : flat_.parameters) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter.value, nullptr);
  }
}

int GradientReduction::gradients_until_reduction(const Bucket& bucket) const {
  const bool each_backward = bucket.gradients_sharded && !settings_.split_backward;
  return static_cast<int>(bucket.spans.size()) * (each_backward ? 1 : settings_.microbatches);
}

void GradientReduction::begin_step(int64_t step) {
  const at::NoGradGuard no_grad;
  step_ = step;
  std::fill(next_.begin(), next_.end(), 0);
  for (size_t i = 0; i < states_.size(); ++i) {
    states_[i] = {gradients_until_reduction(flat_.buckets[i]), false};
    if (!flat_.buckets[i].gradients_sharded) flat_.buckets[i].gradients.zero_();
  }
}

void GradientReduction::collect(size_t index, const Span& span) {
  Bucket& bucket = flat_.buckets[index];
  if (states_[index].missing == gradients_until_reduction(bucket)) {  // the first since the last reduction
    const auto travels = [&] {
      return std::any_of(under_way_.begin(), under_way_.end(), [&](const UnderWay& u) { return u.bucket == index; });
    };
    while (under_way_.size() >= kMostUnderWay || travels()) settle_oldest();
    allocate_storage(bucket.gradients);
    bucket.gradients.zero_();
  }
  at::Tensor& gradient = flat_.parameters[span.parameter].value.mutable_grad();
  bucket.gradients.narrow(0, span.offset, span.count).add_(gradient.flatten());
  gradient.reset();
}

void GradientReduction::gradient_ready(size_t index, const Span& span) {
  const at::NoGradGuard no_grad;
  Bucket& bucket = flat_.buckets[index];
  State& state = states_[index];
  if (bucket.gradients_sharded) collect(index, span);
  --state.missing;
  if (settings_.overlap || bucket.gradients_sharded) reduce_ready(bucket.chunk);
}

void GradientReduction::reduce_ready(int chunk) {
  const auto& order = order_[static_cast<size_t>(chunk)];
  size_t& next = next_[static_cast<size_t>(chunk)];
  while (next < order.size() && states_[order[next]].missing <= 0) {
    reduce(order[next]);
    ++next;
    // The next backward pass starts over where gradients are reduced in each.
    if (next == order.size() && flat_.buckets[order[0]].gradients_sharded) next = 0;
  }
}

void GradientReduction::reduce(size_t index) {
  Bucket& bucket = flat_.buckets[index];
  states_[index].missing = gradients_until_reduction(bucket);
  const comm::ContentTag tag = bucket.tag(step_, comm::Reason::gradient);
  UnderWay under_way{index, {}, {}};
  if (bucket.slices == 1) {
    under_way.handle = comm::all_reduce_async(*bucket.group, bucket.gradients, comm::Reduce::sum, tag);
  } else {
    under_way.own = at::empty({bucket.own_count()}, bucket.gradients.options());
    under_way.handle = comm::reduce_scatter_async(*bucket.group, under_way.own, bucket.gradients, tag);
  }
  under_way_.push_back(std::move(under_way));
  if (!settings_.overlap) settle_oldest();
}

void GradientReduction::settle_oldest() {
  UnderWay done = std::move(under_way_.front());
  under_way_.pop_front();
  done.handle.wait();
  if (!done.own.defined()) return;
  const at::NoGradGuard no_grad;
  Bucket& bucket = flat_.buckets[done.bucket];
  State& state = states_[done.bucket];
  if (state.reduced_once) {
    bucket.own_gradients.add_(done.own);
  } else {
    bucket.own_gradients.copy_(done.own);
  }
  state.reduced_once = true;
  if (bucket.gradients_sharded) release_storage(bucket.gradients);
}

void GradientReduction::finish(const std::function<void(size_t)>& reduced) {
  for (size_t chunk = 0; chunk < order_.size(); ++chunk) {
    for (const size_t i : order_[chunk]) {
      const bool accumulates = !flat_.buckets[i].gradients_sharded;
      if (states_[i].missing > 0 && states_[i].missing < gradients_until_reduction(flat_.buckets[i])) {
        const Parameter& first = flat_.parameters[flat_.buckets[i].spans.front().parameter];
        throw Error("the step ends, but gradients of the bucket that starts with " + first.name + " are missing",
                    "every parameter must take part in every microbatch");
      }
      if (accumulates && !settings_.overlap) reduce(i);
    }
  }
  std::vector<bool> pending(flat_.buckets.size());
  for (const UnderWay& under_way : under_way_) pending[under_way.bucket] = true;
  if (reduced) {
    for (size_t i = 0; i < pending.size(); ++i) {
      if (!pending[i]) reduced(i);
    }
  }
  while (!under_way_.empty()) {
    const size_t bucket = under_way_.front().bucket;
    settle_oldest();
    if (reduced) reduced(bucket);
  }
}

void sum_sequence_partial_gradients(FlatParameters& flat, comm::Group& tp) {
  if (tp.size() == 1) return;
  std::vector<at::Tensor> pieces;
  for (Bucket& bucket : flat.buckets) {
    for (const Span& span : bucket.spans) {
      if (!flat.parameters[span.parameter].sequence_partial) continue;
      const int64_t first = std::max<int64_t>(span.offset, bucket.own_offset());
      const int64_t last = std::min(span.offset + span.count, bucket.own_offset() + bucket.own_count());
      if (first < last) pieces.push_back(bucket.own_gradients.narrow(0, first - bucket.own_offset(), last - first));
    }
  }
  if (pieces.empty()) return;
  const at::Tensor sum = at::cat(pieces);
  comm::all_reduce(tp, sum, comm::Reduce::sum, {.reason = comm::Reason::gradient});
  int64_t offset = 0;
  for (at::Tensor& piece : pieces) {
    piece.copy_(sum.narrow(0, offset, piece.numel()));
    offset += piece.numel();
  }
}

void sum_tied_embedding_gradients(FlatParameters& flat, comm::Group& embedding, int64_t step) {
  for (Bucket& bucket : flat.buckets) {
    if (flat.parameters[bucket.spans.front().parameter].name != "embedding.weight") continue;
    comm::ContentTag tag = bucket.tag(step, comm::Reason::gradient);
    tag.id = comm::content_id("gradients.embedding." + embedding.name());
    comm::all_reduce(embedding, bucket.own_gradients, comm::Reduce::sum, tag);
  }
}

}  // namespace taut::parallel
