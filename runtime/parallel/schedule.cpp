#include "runtime/parallel/schedule.h"

#include <deque>
#include <map>

#include "runtime/config/names.h"
#include "runtime/config/pipeline_passes.h"
#include "taut.h"

namespace taut::parallel {
namespace {

bool is_first(const Action& action, int stage) {
  return stage == 0 && action.chunk == 0;
}
bool is_last(const Schedule& schedule, const Action& action, int stage) {
  return stage + 1 == schedule.stages && action.chunk + 1 == schedule.chunks;
}

/// The message that a pass sends when it is done, or `false` when nobody waits for one.
bool message_after(const Schedule& schedule, int stage, const Action& pass, Action& send) {
  if (schedule.stages == 1) return false;
  if (pass.kind == ActionKind::forward && !is_last(schedule, pass, stage)) {
    send = {ActionKind::send_forward, pass.microbatch, pass.chunk};
    return true;
  }
  if (pass.kind == ActionKind::backward && !is_first(pass, stage)) {
    send = {ActionKind::send_backward, pass.microbatch, pass.chunk};
    return true;
  }
  return false;
}

/// The receiver's action for a sender's.
Action matching_receive(const Schedule& schedule, int sender, const Action& send) {
  if (send.kind == ActionKind::send_forward) {
    return {ActionKind::recv_forward, send.microbatch, send.chunk + (sender + 1 == schedule.stages ? 1 : 0)};
  }
  return {ActionKind::recv_backward, send.microbatch, send.chunk - (sender == 0 ? 1 : 0)};
}

/// Completes programs that hold passes alone: each tensor is sent right after the pass that makes it and received right
/// before the pass that needs it, together with what the same sender sent before it.
Schedule with_messages(Schedule schedule) {
  std::map<std::pair<int, int>, std::deque<Action>> under_way;  // (sender, receiver) -> the receiver's actions
  for (int stage = 0; stage < schedule.stages; ++stage) {
    for (const Action& pass : schedule.programs[stage]) {
      Action send;
      if (!message_after(schedule, stage, pass, send)) continue;
      under_way[{stage, peer_stage(send, stage, schedule.stages)}].push_back(matching_receive(schedule, stage, send));
    }
  }
  for (int stage = 0; stage < schedule.stages; ++stage) {
    std::vector<Action> program;
    std::map<std::pair<int, int>, bool> received[2];  // [carries gradients]: (microbatch, chunk)
    for (const Action& pass : schedule.programs[stage]) {
      const bool gradient = pass.kind == ActionKind::backward;
      const bool has_input =
          pass.kind == ActionKind::forward ? !is_first(pass, stage) : gradient && !is_last(schedule, pass, stage);
      if (schedule.stages > 1 && has_input) {
        const ActionKind kind = gradient ? ActionKind::recv_backward : ActionKind::recv_forward;
        auto& arriving = under_way[{peer_stage({kind, 0, 0}, stage, schedule.stages), stage}];
        while (!received[gradient][{pass.microbatch, pass.chunk}] && !arriving.empty()) {
          const Action next = arriving.front();
          arriving.pop_front();
          received[next.kind == ActionKind::recv_backward][{next.microbatch, next.chunk}] = true;
          program.push_back(next);
        }
      }
      program.push_back(pass);
      Action send;
      if (message_after(schedule, stage, pass, send)) program.push_back(send);
    }
    schedule.programs[stage] = std::move(program);
  }
  return schedule;
}

Schedule from_passes(config::PipelineSchedule kind, int stages, int microbatches, int chunks = 1) {
  constexpr ActionKind kKinds[] = {ActionKind::forward, ActionKind::backward, ActionKind::weight_gradient};
  Schedule schedule{stages, microbatches, chunks, {}, config::splits_backward(kind)};
  for (int stage = 0; stage < stages; ++stage) {
    auto& program = schedule.programs.emplace_back();
    for (const config::Pass& pass : config::pipeline_passes(kind, stages, stage, microbatches, chunks)) {
      program.push_back({kKinds[static_cast<size_t>(pass.kind)], pass.microbatch, pass.chunk});
    }
  }
  return with_messages(std::move(schedule));
}

}  // namespace

bool is_pass(ActionKind kind) {
  return kind == ActionKind::forward || kind == ActionKind::backward || kind == ActionKind::weight_gradient;
}
bool is_send(ActionKind kind) {
  return kind == ActionKind::send_forward || kind == ActionKind::send_backward;
}
bool is_receive(ActionKind kind) {
  return kind == ActionKind::recv_forward || kind == ActionKind::recv_backward;
}

int peer_stage(const Action& action, int stage, int stages) {
  if (is_pass(action.kind)) return stage;
  const bool next = action.kind == ActionKind::send_forward || action.kind == ActionKind::recv_backward;
  return (stage + (next ? 1 : stages - 1)) % stages;
}

Schedule gpipe(int stages, int microbatches) {
  return from_passes(config::PipelineSchedule::gpipe, stages, microbatches);
}

Schedule one_forward_one_backward(int stages, int microbatches) {
  return from_passes(config::PipelineSchedule::one_f_one_b, stages, microbatches);
}

Schedule interleaved(int stages, int microbatches, int chunks) {
  if (chunks > 1 && microbatches % stages != 0) {
    throw Error("parallel.pipeline_schedule is \"interleaved_1f1b\" with " + std::to_string(microbatches) +
                    " microbatches on " + std::to_string(stages) + " stages",
                "make gradient_accumulation_steps a multiple of parallel.pipeline_parallel_size, such as " +
                    std::to_string((microbatches / stages + 1) * stages));
  }
  return from_passes(config::PipelineSchedule::interleaved_1f1b, stages, microbatches, chunks);
}

Schedule zero_bubble(int stages, int microbatches) {
  return from_passes(config::PipelineSchedule::zero_bubble, stages, microbatches);
}

Schedule make_schedule(config::PipelineSchedule kind, int stages, int microbatches, int chunks) {
  if (chunks > 1 && kind != config::PipelineSchedule::interleaved_1f1b) {
    throw Error(std::string("parallel.virtual_pipeline_stages is ") + std::to_string(chunks) +
                    ", but parallel.pipeline_schedule is \"" + config::name(kind) + "\"",
                "use \"interleaved_1f1b\", or set parallel.virtual_pipeline_stages to 1");
  }
  switch (kind) {
    case config::PipelineSchedule::gpipe:
      return gpipe(stages, microbatches);
    case config::PipelineSchedule::one_f_one_b:
      return one_forward_one_backward(stages, microbatches);
    case config::PipelineSchedule::interleaved_1f1b:
      return interleaved(stages, microbatches, chunks);
    case config::PipelineSchedule::zero_bubble:
      return zero_bubble(stages, microbatches);
  }
  throw Error("unknown pipeline schedule");
}

}  // namespace taut::parallel
