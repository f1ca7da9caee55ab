// The line that is printed after every step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace taut::train {

struct StepReport {
  int64_t step = 0, steps = 0;  // this step (from 0), and how many the run has
  double loss = 0, grad_norm = 0, lr = 0, tokens_per_s = 0, step_ms = 0, mfu = 0;
  // Of this rank's tensors: at the end of the step, and the most at once within it (the first step of a run also makes
  // what later steps find).
  int64_t memory_allocated_bytes = 0, memory_peak_bytes = 0;
};

/// "step 3/100  loss 5.1234  …"; without newline.
std::string step_text(const StepReport& report);
/// One JSON object with step, loss, grad_norm, lr, tokens_per_s, step_ms, mfu, memory_allocated_bytes,
/// memory_peak_bytes; numbers that are not finite are null.
std::string step_json(const StepReport& report);

/// "30 steps: the first took 812.3 ms (warm-up), the others 456.0 ms in the median, 8982 tokens/s"; without newline.
/// `step_ms` of one step at least, `step_tokens` of each.
std::string run_text(std::vector<double> step_ms, double step_tokens);

}  // namespace taut::train
