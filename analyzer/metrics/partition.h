// The exclusive partition of every step: each nanosecond gets one category, by the rules below.
//
// Host view (ranks without GPU work), on the trainer's thread, first that fits: checkpoint; waiting for a batch;
// blocked on a collective or message; compute (passes, optimizer, operations); else host. Device view (ranks with GPU
// work), first that fits: compute kernels and memsets; communication kernels; copies; while the GPU has nothing to do:
// checkpoint, waiting for a batch, else idle. A blocking wait is split where the last other member issued its side:
// before, the rank waits for that peer; after, bytes are in flight, which is exposed communication. Waiting for a peer
// is
//   - pipeline_bubble: for another stage, between the pipeline's first forward start and last backward end of the step;
//   - loader_stall: while that peer waits for a batch, where it loads on behalf of this rank (same tensor-parallel
//   group), or
//     holds up another stage before the pipeline starts;
//   - exposed_communication (skew) otherwise.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "analyzer/metrics/intervals.h"
#include "analyzer/metrics/metrics.h"
#include "analyzer/metrics/peers.h"
#include "analyzer/timeline/timeline.h"

namespace taut::metrics {

class Partitioner {
 public:
  explicit Partitioner(const timeline::Timeline& timeline);

  /// One partition per step of `rank` in `range`, in order. O(n log n) in the rank's slices and events.
  std::vector<StepPartition> partition(const timeline::Rank& rank, const StepRange& range) const;

  /// The rank's whole traced span as one step (number 0), for traces without steps; empty when it did nothing.
  std::vector<StepPartition> partition_whole_span(const timeline::Rank& rank) const;

  const PeerIndex& peers() const { return peers_; }

 private:
  struct RankSets;
  RankSets collect(const timeline::Rank& rank) const;
  StepPartition partition_step(const RankSets& sets, int64_t step, int64_t start, int64_t end) const;
  void add_peer_wait(const timeline::Rank& rank, const PeerIndex::PeerWait& wait, std::vector<Segment>& segments) const;

  const timeline::Timeline& timeline_;
  PeerIndex peers_;
  std::map<int32_t, IntervalSet> batch_waits_;                                    // by rank
  std::map<std::tuple<int32_t, int32_t, int32_t>, IntervalSet> pipeline_active_;  // dp, tp, cp -> first forward to last
                                                                                  // backward of every step
};

}  // namespace taut::metrics
