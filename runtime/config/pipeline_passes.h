// The order of a pipeline stage's passes, for who executes them (runtime/parallel/schedule.h adds the messages; the
// schedules are described there) and for who replays them. LibTorch-free.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/config/config.h"

namespace taut::config {

/// `backward` is the whole backward pass, or the input gradient alone in a schedule that splits it.
enum class PassKind { forward, backward, weight_gradient };

struct Pass {
  PassKind kind = PassKind::forward;
  int microbatch = 0, chunk = 0;
};

/// Whether weight gradients are passes of their own.
bool splits_backward(PipelineSchedule schedule);

/// All passes of stage `stage` of `stages` in order. O(microbatches · chunks). `chunks` above 1 belong to
/// interleaved_1f1b alone, which wants `microbatches` to be a multiple of `stages`; the caller has checked that.
std::vector<Pass> pipeline_passes(PipelineSchedule schedule, int stages, int stage, int microbatches, int chunks = 1);

}  // namespace taut::config
