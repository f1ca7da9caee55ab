// What the trace shows of a pipeline: pass times by stage, transfers, and what in a pass does not shrink with the
// microbatch. Input of the pipeline-bubble rule.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "analyzer/detect/rule.h"

namespace taut::detect {

/// Times in milliseconds, medians over the analysed steps and over all pipelines of the job.
struct PipelineProfile {
  /// One kind of pass, by stage.
  struct Passes {
    std::vector<double> time;   // of one pass through one chunk
    std::vector<double> fixed;  // of it, what stays when the microbatch shrinks
  };

  int64_t stages = 0, microbatches = 0, chunks = 1;
  Passes forward, backward, weight_gradient;  // weight_gradient empty unless the schedule splits backward
  bool fixed_known = false;                   // false: guessed, the trace has no operations
  double between_passes = 0;                  // host time of the busiest stage between two passes
  double transfer_forward = 0, transfer_backward = 0;
  double span = 0;                            // first forward start to the last pass's end
  double late_loader = 0;                     // of the span, while the first stage waits for a batch
  double bubble_fraction = 0, bubble_ms = 0;  // 1 - busy / (stages × span); mean idle time of a stage
  double own_ms = 0;                          // sum over all ranks of compute within a step
  int64_t ranks = 0;

  /// All passes of one microbatch on a stage.
  double stage_time(size_t stage) const {
    const double w = weight_gradient.time.empty() ? 0 : weight_gradient.time[stage];
    return static_cast<double>(chunks) * (forward.time[stage] + backward.time[stage] + w);
  }
};

/// Empty without a pipeline of at least two stages in the analysed steps, or when passes are missing from the trace.
std::optional<PipelineProfile> profile_pipeline(const Facts& facts);

}  // namespace taut::detect
