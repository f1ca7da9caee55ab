// Bringing full weights to where they are used.
//
// ZeRO 1 and 2: after the optimizer has updated its slices, every bucket is all-gathered; the next forward pass waits
// for a unit's buckets when it reaches the unit, not before, so that the gathers travel under the forward pass.
//
// ZeRO 3: a unit's weights are gathered before it computes and freed after it has, in the forward and again in the
// backward pass (FSDP; Zhao et al., arXiv 2304.11277, section 4). The next two units are gathered ahead, as long as
// they are no more than stage3_prefetch_bucket_size elements and no more than stage3_max_live_parameters are live. With
// `reshard_after_forward` off weights stay from the forward to the backward pass, which saves the second gather.
//
// The model calls enter() on a unit's input and exit() on its output; they are identities that mark where, in either
// direction, a unit begins and ends.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "runtime/comm/collectives.h"
#include "runtime/parallel/flat_parameters.h"

namespace taut::parallel {

struct GatheringSettings {
  bool overlap = true;  // else every gather blocks where it is needed
  bool reshard_after_forward = true;
  int64_t prefetch_elements = 50'000'000;     // of units gathered ahead
  int64_t max_live_elements = 1'000'000'000;  // no gather ahead beyond this; the unit in use is always gathered
};

class ParameterGathering {
 public:
  /// `flat` must outlive this object.
  ParameterGathering(FlatParameters& flat, const GatheringSettings& settings);
  ParameterGathering(const ParameterGathering&) = delete;
  ParameterGathering& operator=(const ParameterGathering&) = delete;

  /// The unit also computes with the other unit's weights (a head tied to the embedding).
  void also_needs(int unit, int other);
  /// Around a unit's computation. Identities, for tensors that need a gradient. `stays` keeps the unit's weights for a
  /// backward pass that comes next.
  at::Tensor enter(const at::Tensor& input, int unit);
  at::Tensor exit(const at::Tensor& output, int unit, bool stays = false);
  /// The same for a computation whose backward pass does not need the weights (an embedding's).
  void use(int unit) { use(unit, /*forward=*/true); }
  void done(int unit);

  /// After the optimizer's update of one bucket: starts gathering it where the next forward pass needs it whole.
  void updated(size_t bucket, int64_t step);
  /// After the last of them: gathers ahead what the next forward pass needs first.
  void begin_next_step();
  /// Waits for everything under way: Bucket::values that are not sharded are current then.
  void settle();

 private:
  struct State {
    comm::Handle handle;  // of a gather under way
    at::Tensor source;    // its input
    bool whole = true;    // gathered, or being gathered
  };
  /// Waits until the unit's weights are whole and current.
  void use(int unit, bool forward);
  /// Frees the unit's weights where they are sharded.
  void release(int unit);
  void release_bucket(size_t bucket);
  void gather(size_t bucket);
  void wait(State& state);
  int64_t missing_elements(int unit) const;
  void prefetch(int unit, bool forward);

  friend struct UnitEnter;
  friend struct UnitExit;

  FlatParameters& flat_;
  const GatheringSettings settings_;
  std::vector<State> states_;
  std::vector<std::vector<size_t>> buckets_of_unit_;
  int64_t live_elements_ = 0;
  int64_t step_ = 0;
};

}  // namespace taut::parallel
