// Gradient reduction over the data-parallel ranks, bucket by bucket, in the order in which backward finishes them, so
// that the first buckets travel while backward still computes (Li et al., "PyTorch Distributed", VLDB 2020,
// section 3.2).
//
// ZeRO 0 and 1 accumulate over the step's microbatches and reduce once, during the last backward: all-reduce, or
// reduce-scatter to the owners. ZeRO 2 and 3 keep no full gradients: each microbatch's are reduce-scattered as they
// come and added to the owners' slices.
//
// Reductions are sums: the loss is scaled so that the sum over ranks and microbatches is the gradient of the global
// mean.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/comm/collectives.h"
#include "runtime/parallel/flat_parameters.h"

namespace taut::parallel {

/// Elements of a bucket of `bucket_size_mb`; none = "auto": an eighth of the gradients within 1 … 25 MiB, enough
/// buckets to overlap, each long enough to be worth its latency.
int64_t bucket_elements(std::optional<double> bucket_size_mb, int64_t gradient_bytes);

struct ReductionSettings {
  bool overlap = true;   // else each reduction blocks
  int microbatches = 1;  // backward passes of a step
  // The schedule may run a microbatch's weight gradients after the next microbatch's backward (zero bubble): full
  // gradients then accumulate over the step whatever the ZeRO stage.
  bool split_backward = false;
};

class GradientReduction {
 public:
  /// Puts hooks on the parameters, each of which must get its gradient exactly once per backward pass. `flat` must
  /// outlive this object.
  GradientReduction(FlatParameters& flat, const ReductionSettings& settings);
  ~GradientReduction();
  GradientReduction(const GradientReduction&) = delete;
  GradientReduction& operator=(const GradientReduction&) = delete;

  /// Clears the gradients of the step before.
  void begin_step(int64_t step);
  /// After the last backward: Bucket::own_gradients are complete, in bucket order; `reduced`, if given, is called for
  /// each bucket as soon as it is.
  void finish(const std::function<void(size_t bucket)>& reduced = {});

 private:
  struct State {
    int missing = 0;            // gradients until the bucket may be reduced
    bool reduced_once = false;  // own_gradients hold something already
  };
  struct UnderWay {
    size_t bucket = 0;
    at::Tensor own;  // a reduce-scatter's result; undefined for an all-reduce
    comm::Handle handle;
  };
  void gradient_ready(size_t bucket, const Span& span);
  void collect(size_t bucket, const Span& span);
  void reduce_ready(int chunk);
  void reduce(size_t bucket);
  void settle_oldest();
  int gradients_until_reduction(const Bucket& bucket) const;

  FlatParameters& flat_;
  const ReductionSettings settings_;
  std::vector<State> states_;
  std::vector<std::vector<size_t>> order_;  // per chunk: its buckets
  std::vector<size_t> next_;                // per chunk: every rank issues in this order
  std::deque<UnderWay> under_way_;
  int64_t step_ = 0;
};

/// Sums over tp the gradients of parameters of which each tp rank has seen a part of the sequence
/// (Parameter::sequence_partial), in one transfer. After GradientReduction::finish.
void sum_sequence_partial_gradients(FlatParameters& flat, comm::Group& tp);

/// Sums the gradient of the tied word embedding over the first and the last pipeline stage. After finish.
void sum_tied_embedding_gradients(FlatParameters& flat, comm::Group& embedding, int64_t step);

}  // namespace taut::parallel
