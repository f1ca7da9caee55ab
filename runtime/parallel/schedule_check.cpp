// What can be said of a schedule without running it: whether it is valid, when its passes run, what it looks like.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "runtime/parallel/schedule.h"
#include "taut.h"

namespace taut::parallel {
namespace {

constexpr std::array<const char*, 7> kActionNames = {"forward",      "backward",      "weight gradient", "send_forward",
                                                     "recv_forward", "send_backward", "recv_backward"};

[[noreturn]] void invalid(const Schedule& schedule, int stage, const Action& action, const std::string& why) {
  std::string what = "pipeline schedule: stage " + std::to_string(stage) + ", " +
                     kActionNames[static_cast<size_t>(action.kind)] + " of microbatch " +
                     std::to_string(action.microbatch);
  if (schedule.chunks > 1) what += ", chunk " + std::to_string(action.chunk);
  throw Error(what + ": " + why);
}

struct Message {
  bool gradient = false;
  int microbatch = 0;
  int virtual_stage = 0;  // the receiver's
  double sent = 0;        // when, in a simulation

  bool carries_the_same(const Message& other) const {
    return gradient == other.gradient && microbatch == other.microbatch && virtual_stage == other.virtual_stage;
  }
};

Message message_of(const Schedule& schedule, int stage, const Action& action) {
  const int here = action.chunk * schedule.stages + stage;
  switch (action.kind) {
    case ActionKind::send_forward:
      return {false, action.microbatch, here + 1};
    case ActionKind::send_backward:
      return {true, action.microbatch, here - 1};
    default:
      return {action.kind == ActionKind::recv_backward, action.microbatch, here};
  }
}

Action receive_of(const Schedule& schedule, const Message& message) {
  return {message.gradient ? ActionKind::recv_backward : ActionKind::recv_forward, message.microbatch,
          message.virtual_stage / schedule.stages};
}

/// Runs the programs as if sends never blocked. `run(stage, action, message)` is called for every action once what it
/// waits for has happened; a send fills in what its receive gets to see. Throws when no stage can go on.
void execute(const Schedule& schedule, const std::function<void(int, const Action&, Message&)>& run) {
  struct Stream {
    std::vector<Message> sent;
    size_t received = 0;
  };
  const int stages = static_cast<int>(schedule.programs.size());
  // A stage sends to its neighbours round the ring alone: [receiver][0: from the stage before, 1: from the one after].
  // Two stages have one neighbour.
  std::vector<std::array<Stream, 2>> streams(schedule.programs.size());
  const auto stream_to = [&](int receiver, int sender) -> Stream& {
    return streams[receiver][stages > 2 && sender == (receiver + 1) % stages ? 1 : 0];
  };
  std::vector<size_t> next(schedule.programs.size(), 0);
  for (bool progress = true; progress;) {
    progress = false;
    for (int stage = 0; stage < stages; ++stage) {
      const auto& program = schedule.programs[stage];
      for (; next[stage] < program.size(); ++next[stage]) {
        const Action& action = program[next[stage]];
        const int peer = peer_stage(action, stage, stages);
        Message message = message_of(schedule, stage, action);
        if (is_receive(action.kind)) {
          Stream& stream = stream_to(stage, peer);
          if (stream.received == stream.sent.size()) break;  // not sent yet
          const Message& arrived = stream.sent[stream.received];
          if (!arrived.carries_the_same(message)) {
            const Action other = receive_of(schedule, arrived);
            invalid(schedule, stage, action,
                    std::string(arrived.gradient ? "the gradient" : "the activations") + " of microbatch " +
                        std::to_string(other.microbatch) + ", chunk " + std::to_string(other.chunk) + " arrive first");
          }
          message = arrived;
          ++stream.received;
        }
        run(stage, action, message);
        if (is_send(action.kind)) stream_to(peer, stage).sent.push_back(message);
        progress = true;
      }
    }
  }
  for (int stage = 0; stage < stages; ++stage) {
    if (next[stage] < schedule.programs[stage].size()) {
      invalid(schedule, stage, schedule.programs[stage][next[stage]], "waits for ever (deadlock)");
    }
  }
  for (int stage = 0; stage < stages; ++stage) {
    for (const Stream& stream : streams[stage]) {
      if (stream.received == stream.sent.size()) continue;
      invalid(schedule, stage, receive_of(schedule, stream.sent[stream.received]), "is sent but never received");
    }
  }
}

/// Checks one stage's program by itself.
class ProgramCheck {
 public:
  ProgramCheck(const Schedule& schedule, int stage)
      : schedule_(schedule),
        stage_(stage),
        done_(kActionNames.size() * static_cast<size_t>(schedule.chunks * schedule.microbatches)) {}

  void run() {
    for (const Action& action : schedule_.programs[stage_]) check(action);
    for (int chunk = 0; chunk < schedule_.chunks; ++chunk) {
      for (int m = 0; m < schedule_.microbatches; ++m) {
        require({ActionKind::forward, m, chunk});
        require({ActionKind::backward, m, chunk});
        if (schedule_.splits_backward) require({ActionKind::weight_gradient, m, chunk});
      }
    }
  }

 private:
  size_t index(ActionKind kind, int microbatch, int chunk) const {
    return static_cast<size_t>((static_cast<int>(kind) * schedule_.chunks + chunk) * schedule_.microbatches +
                               microbatch);
  }
  bool done(ActionKind kind, int microbatch, int chunk) const { return done_[index(kind, microbatch, chunk)]; }
  void require(const Action& action) const {
    if (!done(action.kind, action.microbatch, action.chunk)) invalid(schedule_, stage_, action, "is missing");
  }

  void check(const Action& action) {
    const auto refuse = [&](const std::string& why) { invalid(schedule_, stage_, action, why); };
    const int m = action.microbatch, chunk = action.chunk;
    if (m < 0 || m >= schedule_.microbatches) refuse("there is no such microbatch");
    if (chunk < 0 || chunk >= schedule_.chunks) refuse("there is no such chunk");
    if (done(action.kind, m, chunk)) refuse("happens twice");
    const bool alone = schedule_.stages == 1;
    const bool first = stage_ == 0 && chunk == 0;
    const bool last = stage_ + 1 == schedule_.stages && chunk + 1 == schedule_.chunks;
    switch (action.kind) {
      case ActionKind::forward:
        if (!first && !(alone ? done(ActionKind::forward, m, chunk - 1) : done(ActionKind::recv_forward, m, chunk))) {
          refuse(alone ? "before the chunk before" : "its input was not received");
        }
        break;
      case ActionKind::backward:
        if (!done(ActionKind::forward, m, chunk)) refuse("before its forward");
        if (!last && !(alone ? done(ActionKind::backward, m, chunk + 1) : done(ActionKind::recv_backward, m, chunk))) {
          refuse(alone ? "before the chunk after" : "its gradient was not received");
        }
        break;
      case ActionKind::weight_gradient:
        if (!schedule_.splits_backward) refuse("backward is not split");
        if (!done(ActionKind::backward, m, chunk)) refuse("before its backward");
        break;
      case ActionKind::send_forward:
        if (last || alone) refuse("there is no next stage");
        if (!done(ActionKind::forward, m, chunk)) refuse("before it is computed");
        break;
      case ActionKind::send_backward:
        if (first || alone) refuse("there is no stage before");
        if (!done(ActionKind::backward, m, chunk)) refuse("before it is computed");
        break;
      case ActionKind::recv_forward:
        if (first || alone) refuse("there is no stage before");
        break;
      case ActionKind::recv_backward:
        if (last || alone) refuse("there is no next stage");
        break;
    }
    done_[index(action.kind, m, chunk)] = true;
  }

  const Schedule& schedule_;
  const int stage_;
  std::vector<bool> done_;  // by index()
};

}  // namespace

void validate(const Schedule& schedule) {
  if (static_cast<int>(schedule.programs.size()) != schedule.stages) {
    throw Error("pipeline schedule: " + std::to_string(schedule.programs.size()) + " programs for " +
                std::to_string(schedule.stages) + " stages");
  }
  for (int stage = 0; stage < schedule.stages; ++stage) ProgramCheck(schedule, stage).run();
  execute(schedule, [](int, const Action&, Message&) {});
}

int peak_in_flight(const std::vector<Action>& program) {
  const bool splits = std::any_of(program.begin(), program.end(),
                                  [](const Action& a) { return a.kind == ActionKind::weight_gradient; });
  const ActionKind release = splits ? ActionKind::weight_gradient : ActionKind::backward;
  int now = 0, peak = 0;
  for (const Action& action : program) {
    if (action.kind == ActionKind::forward) peak = std::max(peak, ++now);
    if (action.kind == release) --now;
  }
  return peak;
}

Simulation simulate(const Schedule& schedule, double forward, double backward, double weight_gradient) {
  Simulation simulation;
  simulation.stages.resize(schedule.programs.size());
  std::vector<double> clock(schedule.programs.size(), 0.0);
  double busy = 0;
  execute(schedule, [&](int stage, const Action& action, Message& message) {
    double& now = clock[stage];
    if (is_send(action.kind)) {
      message.sent = now;
    } else if (is_receive(action.kind)) {
      now = std::max(now, message.sent);
    } else {
      const double length = action.kind == ActionKind::forward    ? forward
                            : action.kind == ActionKind::backward ? backward
                                                                  : weight_gradient;
      simulation.stages[stage].push_back({action, now, now + length});
      now += length;
      busy += length;
    }
  });
  for (const double end : clock) simulation.span = std::max(simulation.span, end);
  if (simulation.span > 0) {
    simulation.bubble_fraction = 1.0 - busy / (simulation.span * static_cast<double>(clock.size()));
  }
  return simulation;
}

std::string to_text(const Schedule& schedule) {
  const auto label = [&](const Action& action) {
    const char* letter = action.kind == ActionKind::forward ? "F" : action.kind == ActionKind::backward ? "B" : "W";
    std::string text = letter + std::to_string(action.microbatch);
    if (schedule.chunks > 1) text += "." + std::to_string(action.chunk);
    return text;
  };
  const Simulation simulation = simulate(schedule, 1, schedule.splits_backward ? 1 : 2, 1);
  const size_t width = 1 + label({ActionKind::forward, schedule.microbatches - 1, schedule.chunks - 1}).size();
  std::string text;
  for (size_t stage = 0; stage < simulation.stages.size(); ++stage) {
    std::string line;
    for (const SimulatedSlot& slot : simulation.stages[stage]) {
      line.resize(static_cast<size_t>(std::lround(slot.start)) * width, ' ');
      line += label(slot.action);
    }
    text += "stage " + std::to_string(stage) + " | " + line + "\n";
  }
  return text;
}

}  // namespace taut::parallel
