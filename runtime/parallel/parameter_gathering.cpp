#include "runtime/parallel/parameter_gathering.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace taut::parallel {
namespace {

constexpr int kUnitsAhead = 2;

}  // namespace

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// autograd's context saves plain values only; the trainer keeps the ParameterGathering alive.
struct UnitEnter : torch::autograd::Function<UnitEnter> {
  static Variable forward(AutogradContext* ctx, const Variable& input, ParameterGathering* gathering, int64_t unit) {
    ctx->saved_data["gathering"] = reinterpret_cast<int64_t>(gathering);
    ctx->saved_data["unit"] = unit;
    gathering->use(static_cast<int>(unit), /*forward=*/true);
    return input.view_as(input);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    auto* gathering = reinterpret_cast<ParameterGathering*>(ctx->saved_data["gathering"].toInt());
    gathering->release(static_cast<int>(ctx->saved_data["unit"].toInt()));
    return {gradients[0], Variable(), Variable()};
  }
};

struct UnitExit : torch::autograd::Function<UnitExit> {
  static Variable forward(AutogradContext* ctx, const Variable& output, ParameterGathering* gathering, int64_t unit,
                          bool stays) {
    ctx->saved_data["gathering"] = reinterpret_cast<int64_t>(gathering);
    ctx->saved_data["unit"] = unit;
    if (!stays) gathering->done(static_cast<int>(unit));
    return output.view_as(output);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    auto* gathering = reinterpret_cast<ParameterGathering*>(ctx->saved_data["gathering"].toInt());
    gathering->use(static_cast<int>(ctx->saved_data["unit"].toInt()), /*forward=*/false);
    return {gradients[0], Variable(), Variable(), Variable()};
  }
};

ParameterGathering::ParameterGathering(FlatParameters& flat, const GatheringSettings& settings)
    : flat_(flat), settings_(settings), states_(flat.buckets.size()) {
  for (size_t i = 0; i < flat_.buckets.size(); ++i) {
    const Bucket& bucket = flat_.buckets[i];
    states_[i].whole = !bucket.values_sharded;
    for (const Span& span : bucket.spans) {
      const auto unit = static_cast<size_t>(flat_.parameters[span.parameter].unit);
      if (buckets_of_unit_.size() <= unit) buckets_of_unit_.resize(unit + 1);
      auto& buckets = buckets_of_unit_[unit];
      if (buckets.empty() || buckets.back() != i) buckets.push_back(i);
    }
  }
}

void ParameterGathering::also_needs(int unit, int other) {
  const auto& others = buckets_of_unit_[static_cast<size_t>(other)];
  auto& buckets = buckets_of_unit_[static_cast<size_t>(unit)];
  buckets.insert(buckets.end(), others.begin(), others.end());
}

at::Tensor ParameterGathering::enter(const at::Tensor& input, int unit) {
  return UnitEnter::apply(input, this, int64_t{unit});
}

at::Tensor ParameterGathering::exit(const at::Tensor& output, int unit, bool stays) {
  return UnitExit::apply(output, this, int64_t{unit}, stays);
}

void ParameterGathering::done(int unit) {
  if (settings_.reshard_after_forward) release(unit);
}

int64_t ParameterGathering::missing_elements(int unit) const {
  int64_t sum = 0;
  for (const size_t i : buckets_of_unit_[static_cast<size_t>(unit)]) {
    if (!states_[i].whole) sum += flat_.buckets[i].count;
  }
  return sum;
}

void ParameterGathering::wait(State& state) {
  state.handle.wait();
  state.handle = {};
  state.source.reset();
}

void ParameterGathering::gather(size_t index) {
  const at::NoGradGuard no_grad;
  Bucket& bucket = flat_.buckets[index];
  State& state = states_[index];
  if (bucket.values_sharded) {
    allocate_storage(bucket.values);
    live_elements_ += bucket.count;
  }
  // A copy unless the slice can travel as it is: under ZeRO 1 and 2 it lies inside the output.
  state.source = bucket.own_values.to(bucket.values.scalar_type(), /*non_blocking=*/false,
                                      /*copy=*/!bucket.values_sharded);
  state.handle = comm::all_gather_into_tensor_async(*bucket.group, bucket.values, state.source,
                                                    bucket.tag(step_, comm::Reason::parameter));
  state.whole = true;
}

void ParameterGathering::use(int unit, bool forward) {
  const auto& buckets = buckets_of_unit_[static_cast<size_t>(unit)];
  for (const size_t i : buckets) {
    if (!states_[i].whole) gather(i);
  }
  prefetch(unit, forward);
  for (const size_t i : buckets) wait(states_[i]);
}

void ParameterGathering::prefetch(int unit, bool forward) {
  if (!settings_.overlap) return;
  const int units = static_cast<int>(buckets_of_unit_.size()), direction = forward ? 1 : -1;
  int64_t ahead = 0;
  for (int i = 1; i <= kUnitsAhead; ++i) {
    const int next = unit + i * direction;
    if (next < 0 || next >= units) return;
    const int64_t count = missing_elements(next);
    ahead += count;
    if (ahead > settings_.prefetch_elements || live_elements_ + count > settings_.max_live_elements) return;
    for (const size_t bucket : buckets_of_unit_[static_cast<size_t>(next)]) {
      if (!states_[bucket].whole) gather(bucket);
    }
  }
}

void ParameterGathering::release_bucket(size_t index) {
  Bucket& bucket = flat_.buckets[index];
  State& state = states_[index];
  if (!bucket.values_sharded || !state.whole) return;
  wait(state);
  state.whole = false;
  release_storage(bucket.values);
  live_elements_ -= bucket.count;
}

void ParameterGathering::release(int unit) {
  for (const size_t i : buckets_of_unit_[static_cast<size_t>(unit)]) release_bucket(i);
}

void ParameterGathering::updated(size_t index, int64_t step) {
  step_ = step + 1;
  const Bucket& bucket = flat_.buckets[index];
  if (bucket.slices == 1) return;
  if (bucket.values_sharded) {
    release_bucket(index);  // gathered ahead for a chunk that had its last turn: stale now
    return;
  }
  gather(index);
  if (!settings_.overlap) wait(states_[index]);
}

void ParameterGathering::begin_next_step() {
  prefetch(-1, /*forward=*/true);
}

void ParameterGathering::settle() {
  for (State& state : states_) wait(state);
}

}  // namespace taut::parallel
