// Replay of a pipeline schedule with given pass and transfer times.
//
// GPipe: Huang et al. 2019; 1F1B (PipeDream-flush): Narayanan et al. 2021, "Efficient Large-Scale Language Model
// Training on GPU Clusters", section 2.2. With equal stages and free transfers both have the bubble (p-1)/(m+p-1).
#pragma once

#include <cstdint>
#include <vector>

namespace taut::simulate {

enum class Schedule { gpipe, one_f_one_b };

/// Times in any one unit, indexed by stage 0…p-1. A stage's sends cost the stage nothing; the receiver waits for them.
struct PipelineCosts {
  Schedule schedule = Schedule::one_f_one_b;
  int64_t microbatches = 1;
  std::vector<double> forward, backward;  // [p] one microbatch's pass
  std::vector<double> ready;              // [p] when the stage may start its first pass; empty = 0
  double transfer_forward = 0;            // activations to the next stage
  double transfer_backward = 0;           // gradients to the previous stage
};

struct PipelineReplay {
  double start = 0, end = 0;   // first forward start, last backward end
  std::vector<double> busy;    // [p] sum of the stage's passes
  double bubble_fraction = 0;  // 1 - sum(busy) / (p * span)

  double span() const { return end - start; }
};

/// O(p × m). Throws taut::Error when the vectors' sizes differ, a time is negative or there is nothing to do.
PipelineReplay replay_pipeline(const PipelineCosts& costs);

/// (p-1)/(m+p-1): the bubble of an evenly split pipeline with free transfers.
double ideal_bubble_fraction(int64_t stages, int64_t microbatches);

}  // namespace taut::simulate
