// Replay of a pipeline schedule with given pass and transfer times.
//
// The schedules' pass orders are the runtime's own (runtime/config/pipeline_passes.h), the bubble that equal stages and
// free transfers would leave is in runtime/config/pipeline_math.h.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/config/config.h"

namespace taut::simulate {

/// Times in any one unit, indexed by stage 0…p-1. A stage's sends cost the stage nothing; the receiver waits for them.
struct PipelineCosts {
  config::PipelineSchedule schedule = config::PipelineSchedule::one_f_one_b;
  int64_t microbatches = 1;
  int64_t chunks = 1;  // a stage; above 1 in interleaved_1f1b alone, with microbatches in groups of p
  std::vector<double> forward, backward;  // [p] one microbatch's pass through one chunk
  std::vector<double> weight_gradient;    // [p] likewise, where the schedule splits backward; empty = 0
  std::vector<double> ready;              // [p] when the stage may start its first pass; empty = 0
  double transfer_forward = 0;            // activations to the next stage
  double transfer_backward = 0;           // gradients to the previous stage
};

struct PipelineReplay {
  double start = 0, end = 0;   // first forward start, last pass's end
  std::vector<double> busy;    // [p] sum of the stage's passes
  double bubble_fraction = 0;  // 1 - sum(busy) / (p * span)

  double span() const { return end - start; }
};

/// O(p × m × chunks). Throws taut::Error when the vectors' sizes differ, a time is negative, there is nothing to do or
/// the schedule does not exist in this size.
PipelineReplay replay_pipeline(const PipelineCosts& costs);

}  // namespace taut::simulate
