// Apply and rerun: the chosen suggestions become a config, `taut train` runs it beside the window, and its trace is
// opened next to the first one. A small state machine; the window's thread drives it once per frame and never waits.
//
//   idle -> preparing -> running -> opening -> idle (with an outcome)
//                           \-> stopping -> idle
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gui/app/child_process.h"
#include "gui/app/document.h"
#include "gui/app/task.h"

namespace taut::gui {

/// What the user asked for. An empty `config` = the one stored in the trace.
struct RerunRequest {
  std::vector<std::string> suggestions;  // ids
  std::string config;                    // path
  int64_t steps = 0;                     // 0 = as the config says
};

/// What will be run, once the patched config has been written.
struct RerunPlan {
  std::string config, trace;  // paths, beside the first trace
  int64_t ranks = 1, steps = 0;
  std::vector<std::string> command;
};

/// Writes the patched config beside the document's trace, under a name that is not taken. Throws taut::Error when there
/// is no config, a suggestion does not apply, or the folder cannot be written.
RerunPlan plan_rerun(const Document& document, const RerunRequest& request, const std::string& taut_program);

/// A line of `taut train --format json`.
struct StepLine {
  int64_t step = 0;
  double loss = 0, tokens_per_s = 0, step_ms = 0;
};
/// The step that a line tells of, or nothing when it tells of something else.
std::optional<StepLine> parse_step_line(const std::string& line);

class Rerun {
 public:
  enum class State { idle, preparing, running, stopping, opening };
  enum class Outcome { none, done, failed, aborted };

  /// Begins; what an earlier rerun left is forgotten. Ignored unless idle.
  void start(std::shared_ptr<const Document> before, RerunRequest request, std::string taut_program,
             std::function<void()> wake);
  /// Ends the run's processes; the trace up to then is kept on disk, but not opened.
  void abort();
  /// Moves on as far as possible without waiting. Returns the new trace's document once, when it has been opened.
  std::shared_ptr<const Document> advance();

  State state() const { return state_; }
  Outcome outcome() const { return outcome_; }
  bool busy() const { return state_ != State::idle; }
  const Failure& failure() const { return failure_; }
  const RerunPlan& plan() const { return plan_; }
  const std::vector<StepLine>& steps() const { return steps_; }
  /// What the run printed besides step lines, newest last, at most 500 lines.
  const std::vector<OutputLine>& log() const { return log_; }
  /// 0…1: the share of the steps that are done.
  double progress() const;

 private:
  void end(Outcome outcome, Failure failure = {});
  void take_output();
  void run_ended(const ExitStatus& status);

  State state_ = State::idle;
  Outcome outcome_ = Outcome::none;
  RerunPlan plan_;
  Failure failure_;
  std::vector<StepLine> steps_;
  std::vector<OutputLine> log_;
  std::function<void()> wake_;
  Task<RerunPlan> preparing_;
  Task<std::shared_ptr<const Document>> opening_;
  ChildProcess process_;
};

}  // namespace taut::gui
