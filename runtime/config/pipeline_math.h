// Closed forms of pipeline schedules (what the schedules are: runtime/parallel/schedule.h), for the memory model, the
// analyzer and the planner. p stages, m microbatches, v chunks a stage (1 unless interleaved). LibTorch-free.
//
// Peak of what a stage keeps, stage s counted from 0: gpipe m, 1f1b min(p − s, m), zero_bubble min(p, m) microbatches;
// interleaved min(2(p − 1 − s) + (v − 1)p + 1, m · v) chunks of microbatches, each 1/v of the stage's layers (Megatron
// LM's warm-up and the pass after it).
//
// Idle time of a step of equal stages and free transfers, with F, B, W the times of a stage's forward, input gradient
// and weight gradient of one microbatch:
//   gpipe, 1f1b   (p − 1)(F + B + W)            share (p − 1)/(m + p − 1)
//   interleaved   (p − 1)(F + B + W)/v          share (p − 1)/(v · m + p − 1), m a multiple of p
//   zero_bubble   (p − 1)(F + B − W) if m ≥ p   (Qi et al., arXiv 2401.10241, table 2, ZB-H1), for W ≤ F and W ≤ B.
//                 With fewer
//                 microbatches there are not enough W to fill the gaps: the last B reaches stage 0 after
//                 (m + p − 1)(F + B), and one W remains, so that the step takes
//                 max(m(F + B + W) + (p − 1)(F + B − W), (m + p − 1)(F + B) + W); the first is larger from m = p on.
//                 With F = B = W the idle time over the ideal is (p − 1)/(3m), plus (p − m)/(3m) if m < p.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/config/config.h"

namespace taut::config {

/// Layers of each virtual stage c · p + s: parallel.pipeline_layers with one chunk a stage, else as even as possible,
/// where the first ones take the remainder. Size = p · v.
std::vector<int64_t> layers_per_virtual_stage(const Config& config);

/// Times of one stage's passes of one microbatch, in any unit. `backward` is the input gradient alone.
struct PassTimes {
  double forward = 1, backward = 1, weight_gradient = 1;
};

/// The share of the step that a stage idles. 0 with one stage. Exact for m ≥ 1, W ≤ F and W ≤ B (zero_bubble) and
/// m a multiple of p (interleaved).
double ideal_bubble_fraction(PipelineSchedule schedule, int64_t stages, int64_t microbatches, int64_t chunks = 1,
                             const PassTimes& times = {});

/// Forward passes (of one chunk) that a stage runs before its first backward, not counting the one right before it.
int64_t warm_up_passes(PipelineSchedule schedule, int64_t stages, int64_t stage, int64_t microbatches,
                       int64_t chunks = 1);

/// How many (microbatch, chunk) of a stage keep their activations at the peak.
int64_t passes_in_flight(PipelineSchedule schedule, int64_t stages, int64_t stage, int64_t microbatches,
                         int64_t chunks = 1);

}  // namespace taut::config
