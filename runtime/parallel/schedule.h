// Pipeline schedules as data: what each stage does, in order. A schedule is generated once, checked once, and executed
// by PipelineRunner; nothing in the runner knows which schedule it runs.
//
// gpipe (Huang et al., arXiv 1811.06965): all forwards, then all backwards; every microbatch is in flight at once.
// 1f1b (Narayanan et al., "PipeDream-Flush", arXiv 2006.09503): after a warm-up of p − 1 − stage forwards, one forward
// and one backward in turn; at most p − stage in flight. Both idle (p − 1)/(m + p − 1) of the step.
//
// With one stage, 1f1b is plain gradient accumulation. No LibTorch here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/config.h"

namespace taut::parallel {

/// Send and receive name what travels: activations go forward (to stage + 1), gradients backward (to stage − 1).
enum class ActionKind { forward, backward, send_forward, recv_forward, send_backward, recv_backward };

struct Action {
  ActionKind kind = ActionKind::forward;
  int microbatch = 0;
};

struct Schedule {
  int stages = 1, microbatches = 1;
  std::vector<std::vector<Action>> programs;  // one per stage
};

Schedule gpipe(int stages, int microbatches);
Schedule one_forward_one_backward(int stages, int microbatches);
/// The schedule of that name. Throws taut::Error for one that is not implemented.
Schedule make_schedule(config::PipelineSchedule kind, int stages, int microbatches);

/// Throws taut::Error, naming stage and action, unless every stage runs each microbatch's forward and backward exactly
/// once in that order with its tensors received before and sent after, messages of one direction arrive in the order in
/// which they are awaited, and the whole runs to its end when sends do not block.
void validate(const Schedule& schedule);

/// Microbatches whose activations a stage keeps at most at once.
int peak_in_flight(const std::vector<Action>& program);

/// When each forward and backward runs if they take `forward` and `backward` and transfers take nothing.
struct SimulatedSlot {
  Action action;
  double start = 0, end = 0;
};
struct Simulation {
  std::vector<std::vector<SimulatedSlot>> stages;
  double span = 0;
  double bubble_fraction = 0;  // 1 − Σ busy / (stages · span)
};
Simulation simulate(const Schedule& schedule, double forward, double backward);

/// The schedule as text, a line per stage and a column per unit of time (forward 1, backward 2 units).
std::string to_text(const Schedule& schedule);

}  // namespace taut::parallel
