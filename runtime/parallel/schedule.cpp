#include "runtime/parallel/schedule.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "runtime/config/names.h"
#include "taut.h"

namespace taut::parallel {
namespace {

constexpr const char* kActionNames[] = {"forward",      "backward",      "send_forward",
                                        "recv_forward", "send_backward", "recv_backward"};

void add_forward(std::vector<Action>& program, int stage, int stages, int microbatch) {
  if (stage > 0) program.push_back({ActionKind::recv_forward, microbatch});
  program.push_back({ActionKind::forward, microbatch});
  if (stage + 1 < stages) program.push_back({ActionKind::send_forward, microbatch});
}

void add_backward(std::vector<Action>& program, int stage, int stages, int microbatch) {
  if (stage + 1 < stages) program.push_back({ActionKind::recv_backward, microbatch});
  program.push_back({ActionKind::backward, microbatch});
  if (stage > 0) program.push_back({ActionKind::send_backward, microbatch});
}

[[noreturn]] void invalid(int stage, const Action& action, const std::string& why) {
  throw Error("pipeline schedule: stage " + std::to_string(stage) + ", " + kActionNames[static_cast<int>(action.kind)] +
              " of microbatch " + std::to_string(action.microbatch) + ": " + why);
}

/// Runs the programs as if sends never blocked: calls `run(stage, action)` for every action once what it waits for has
/// happened. Throws when no stage can go on.
void execute(const Schedule& schedule, const std::function<void(int, const Action&)>& run) {
  std::vector<size_t> next(schedule.programs.size(), 0);
  // Messages under way, by (receiving stage, travels forward): the microbatches in the order in which they were sent.
  std::map<std::pair<int, bool>, std::vector<int>> sent;
  std::map<std::pair<int, bool>, size_t> received;
  bool progress = true;
  while (progress) {
    progress = false;
    for (int stage = 0; stage < static_cast<int>(schedule.programs.size()); ++stage) {
      const auto& program = schedule.programs[stage];
      while (next[stage] < program.size()) {
        const Action& action = program[next[stage]];
        if (action.kind == ActionKind::recv_forward || action.kind == ActionKind::recv_backward) {
          const auto key = std::make_pair(stage, action.kind == ActionKind::recv_forward);
          const auto& queue = sent[key];
          size_t& taken = received[key];
          if (taken == queue.size()) break;  // not sent yet
          if (queue[taken] != action.microbatch) {
            invalid(stage, action, "microbatch " + std::to_string(queue[taken]) + " arrives first");
          }
          ++taken;
        }
        run(stage, action);
        if (action.kind == ActionKind::send_forward) sent[{stage + 1, true}].push_back(action.microbatch);
        if (action.kind == ActionKind::send_backward) sent[{stage - 1, false}].push_back(action.microbatch);
        ++next[stage];
        progress = true;
      }
    }
  }
  for (int stage = 0; stage < static_cast<int>(schedule.programs.size()); ++stage) {
    if (next[stage] < schedule.programs[stage].size()) {
      invalid(stage, schedule.programs[stage][next[stage]], "waits for ever (deadlock)");
    }
  }
  for (const auto& [key, queue] : sent) {
    if (received[key] != queue.size()) {
      invalid(key.first, {key.second ? ActionKind::recv_forward : ActionKind::recv_backward, queue[received[key]]},
              "is sent but never received");
    }
  }
}

}  // namespace

Schedule gpipe(int stages, int microbatches) {
  Schedule schedule{stages, microbatches, {}};
  for (int stage = 0; stage < stages; ++stage) {
    auto& program = schedule.programs.emplace_back();
    for (int m = 0; m < microbatches; ++m) add_forward(program, stage, stages, m);
    for (int m = 0; m < microbatches; ++m) add_backward(program, stage, stages, m);
  }
  return schedule;
}

Schedule one_forward_one_backward(int stages, int microbatches) {
  Schedule schedule{stages, microbatches, {}};
  for (int stage = 0; stage < stages; ++stage) {
    auto& program = schedule.programs.emplace_back();
    const int warm_up = std::min(stages - 1 - stage, microbatches);
    for (int m = 0; m < warm_up; ++m) add_forward(program, stage, stages, m);
    for (int m = warm_up; m < microbatches; ++m) {
      add_forward(program, stage, stages, m);
      add_backward(program, stage, stages, m - warm_up);
    }
    for (int m = microbatches - warm_up; m < microbatches; ++m) add_backward(program, stage, stages, m);
  }
  return schedule;
}

Schedule make_schedule(config::PipelineSchedule kind, int stages, int microbatches) {
  switch (kind) {
    case config::PipelineSchedule::gpipe:
      return gpipe(stages, microbatches);
    case config::PipelineSchedule::one_f_one_b:
      return one_forward_one_backward(stages, microbatches);
    default:
      break;
  }
  throw Error(std::string("parallel.pipeline_schedule is ") + config::name(kind) + ", which is not supported yet",
              "1f1b or gpipe");
}

void validate(const Schedule& schedule) {
  const int last = schedule.stages - 1;
  if (static_cast<int>(schedule.programs.size()) != schedule.stages) {
    throw Error("pipeline schedule: " + std::to_string(schedule.programs.size()) + " programs for " +
                std::to_string(schedule.stages) + " stages");
  }
  for (int stage = 0; stage <= last; ++stage) {
    std::map<std::pair<ActionKind, int>, int> seen;
    const auto done = [&](ActionKind kind, int microbatch) { return seen.count({kind, microbatch}) > 0; };
    for (const Action& action : schedule.programs[stage]) {
      const int m = action.microbatch;
      if (m < 0 || m >= schedule.microbatches) invalid(stage, action, "there is no such microbatch");
      if (done(action.kind, m)) invalid(stage, action, "happens twice");
      switch (action.kind) {
        case ActionKind::forward:
          if (stage > 0 && !done(ActionKind::recv_forward, m)) invalid(stage, action, "its input was not received");
          break;
        case ActionKind::backward:
          if (!done(ActionKind::forward, m)) invalid(stage, action, "before its forward");
          if (stage < last && !done(ActionKind::recv_backward, m))
            invalid(stage, action, "its gradient was not received");
          break;
        case ActionKind::send_forward:
          if (stage == last) invalid(stage, action, "there is no next stage");
          if (!done(ActionKind::forward, m)) invalid(stage, action, "before it is computed");
          break;
        case ActionKind::send_backward:
          if (stage == 0) invalid(stage, action, "there is no stage before");
          if (!done(ActionKind::backward, m)) invalid(stage, action, "before it is computed");
          break;
        case ActionKind::recv_forward:
          if (stage == 0) invalid(stage, action, "there is no stage before");
          break;
        case ActionKind::recv_backward:
          if (stage == last) invalid(stage, action, "there is no next stage");
          break;
      }
      ++seen[{action.kind, m}];
    }
    for (int m = 0; m < schedule.microbatches; ++m) {
      if (!done(ActionKind::forward, m)) invalid(stage, {ActionKind::forward, m}, "is missing");
      if (!done(ActionKind::backward, m)) invalid(stage, {ActionKind::backward, m}, "is missing");
    }
  }
  execute(schedule, [](int, const Action&) {});
}

int peak_in_flight(const std::vector<Action>& program) {
  int now = 0, peak = 0;
  for (const Action& action : program) {
    if (action.kind == ActionKind::forward) peak = std::max(peak, ++now);
    if (action.kind == ActionKind::backward) --now;
  }
  return peak;
}

Simulation simulate(const Schedule& schedule, double forward, double backward) {
  Simulation simulation;
  simulation.stages.resize(schedule.programs.size());
  std::vector<double> clock(schedule.programs.size(), 0.0);
  std::map<std::tuple<int, bool, int>, double> arrival;  // (receiving stage, travels forward, microbatch)
  double busy = 0;
  execute(schedule, [&](int stage, const Action& action) {
    double& now = clock[stage];
    switch (action.kind) {
      case ActionKind::forward:
      case ActionKind::backward: {
        const double length = action.kind == ActionKind::forward ? forward : backward;
        simulation.stages[stage].push_back({action, now, now + length});
        now += length;
        busy += length;
        break;
      }
      case ActionKind::send_forward:
        arrival[{stage + 1, true, action.microbatch}] = now;
        break;
      case ActionKind::send_backward:
        arrival[{stage - 1, false, action.microbatch}] = now;
        break;
      case ActionKind::recv_forward:
        now = std::max(now, arrival[{stage, true, action.microbatch}]);
        break;
      case ActionKind::recv_backward:
        now = std::max(now, arrival[{stage, false, action.microbatch}]);
        break;
    }
  });
  for (const double end : clock) simulation.span = std::max(simulation.span, end);
  if (simulation.span > 0) {
    simulation.bubble_fraction = 1.0 - busy / (simulation.span * static_cast<double>(clock.size()));
  }
  return simulation;
}

std::string to_text(const Schedule& schedule) {
  const Simulation simulation = simulate(schedule, 1, 2);
  const size_t width = 2 + std::to_string(std::max(0, schedule.microbatches - 1)).size();
  std::string text;
  for (size_t stage = 0; stage < simulation.stages.size(); ++stage) {
    std::string line;
    for (const SimulatedSlot& slot : simulation.stages[stage]) {
      line.resize(static_cast<size_t>(std::lround(slot.start)) * width, ' ');
      line += slot.action.kind == ActionKind::forward ? 'F' : 'B';
      line += std::to_string(slot.action.microbatch);
    }
    text += "stage " + std::to_string(stage) + " | " + line + "\n";
  }
  return text;
}

}  // namespace taut::parallel
