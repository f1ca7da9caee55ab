// Pipeline schedules as data: what each stage does, in order. A schedule is generated once, checked once, and executed
// by PipelineRunner; nothing in the runner knows which schedule it runs.
//
// gpipe (Huang et al., arXiv 1811.06965): all forwards, then all backwards; every microbatch is in flight at once.
// 1f1b (Narayanan et al., "PipeDream-Flush", arXiv 2006.09503): after a warm-up of p − 1 − stage forwards, one forward
//   and one backward in turn; at most p − stage in flight.
// interleaved_1f1b (Narayanan et al., arXiv 2104.04473, section 2.2; Megatron-LM's order): a stage holds v chunks of
//   layers; microbatches go through them in groups of p, so their number must be a multiple of p.
// zero_bubble (Qi et al., arXiv 2401.10241, ZB-H1): backward is split into B, the gradient of the input, which the
//   stage before waits for, and W, the gradient of the weights, which nobody waits for. Stage s runs 1f1b's order with
//   W s microbatches late, so that W fills the gaps at the end; on every stage at most min(p, m) microbatches keep
//   their activations, no more than 1f1b's first stage.
//
// How much each idles and keeps: runtime/config/pipeline_math.h. With one stage, 1f1b is plain gradient accumulation.
//
// Chunk c of stage s is virtual stage c · p + s. Activations go to the next virtual stage, gradients to the one before;
// both may be on the other end of the pipeline, so messages run round a ring of stages. Messages from one stage to
// another arrive in the order in which they are sent, whatever they carry: with two stages and several chunks
// activations and gradients share both directions. Programs therefore receive in the sender's order, sometimes earlier
// than they need to. No LibTorch here.
#pragma once

#include <string>
#include <vector>

#include "runtime/config/config.h"

namespace taut::parallel {

/// `backward` is the whole backward pass, or B in a schedule that splits it; `weight_gradient` is W. Send and receive
/// name what travels: activations go forward (to the next virtual stage), gradients backward.
enum class ActionKind { forward, backward, weight_gradient, send_forward, recv_forward, send_backward, recv_backward };

struct Action {
  ActionKind kind = ActionKind::forward;
  int microbatch = 0;
  int chunk = 0;  // of the stage that acts, for a message too
};

struct Schedule {
  int stages = 1, microbatches = 1, chunks = 1;
  std::vector<std::vector<Action>> programs = {};  // one per stage
  bool splits_backward = false;                    // W passes are actions of their own
};

/// Whether the action computes (F, B or W), sends or receives.
bool is_pass(ActionKind kind);
bool is_send(ActionKind kind);
bool is_receive(ActionKind kind);
/// The stage that an action's message goes to or comes from; the stage itself for a pass.
int peer_stage(const Action& action, int stage, int stages);

Schedule gpipe(int stages, int microbatches);
Schedule one_forward_one_backward(int stages, int microbatches);
/// With one chunk this is 1f1b. Throws taut::Error when `microbatches` is no multiple of `stages`.
Schedule interleaved(int stages, int microbatches, int chunks);
Schedule zero_bubble(int stages, int microbatches);
/// The schedule of that name. Throws taut::Error when it cannot be had in this size (several chunks are interleaved's).
Schedule make_schedule(config::PipelineSchedule kind, int stages, int microbatches, int chunks = 1);

/// Throws taut::Error, naming stage and action, unless every stage runs each pass of each microbatch and chunk exactly
/// once in their order, with its tensors received before and sent after, messages from one stage to another are awaited
/// in the order in which they are sent, and the whole runs to its end when sends do not block.
void validate(const Schedule& schedule);

/// How many (microbatch, chunk) keep their activations at most at once: from forward to weight_gradient where the
/// program splits backward, else to backward.
int peak_in_flight(const std::vector<Action>& program);

/// When each pass runs if passes of one kind take the same time everywhere and transfers take none.
struct SimulatedSlot {
  Action action;
  double start = 0, end = 0;
};
struct Simulation {
  std::vector<std::vector<SimulatedSlot>> stages;
  double span = 0;
  double bubble_fraction = 0;  // 1 − Σ busy / (stages · span)
};
/// Times are those of one chunk's pass.
Simulation simulate(const Schedule& schedule, double forward, double backward, double weight_gradient = 0);

/// The schedule as text, a line per stage and a column per unit of time (forward 1; backward 2, or B 1 and W 1):
/// "F3" is the forward of microbatch 3, "F3.1" that of its chunk 1.
std::string to_text(const Schedule& schedule);

}  // namespace taut::parallel
