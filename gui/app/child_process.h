// A program that runs beside the window: started without a shell, its output read line by line, ended with all that it
// started. Leads its own process group.
//
// Thread safety: call from one thread. A reader thread of its own collects lines, calls `wake` when there are new ones
// or the program has ended, and reaps it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace taut::gui {

struct OutputLine {
  bool is_error = false;  // from stderr
  std::string text;
};

/// How a program ended: by itself with `code`, or by `signal` (0 = none).
struct ExitStatus {
  int code = 0, signal = 0;
};

class ChildProcess {
 public:
  ChildProcess() = default;
  /// Ends the program if it still runs, and waits for that.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Starts `command` (a path and its arguments) with stdin from /dev/null. Throws taut::Error when that fails or an
  /// earlier program still runs.
  void start(const std::vector<std::string>& command, std::function<void()> wake);

  /// The lines since the last call, in order. Lines longer than 64 KiB are cut.
  std::vector<OutputLine> take_lines();

  /// Empty until the program has ended and all its output has been taken in.
  std::optional<ExitStatus> exit_status() const;

  /// Asks the program's group to end (SIGTERM), and kills it after `grace_s` when it has not. Returns at once.
  void stop(double grace_s = 10);

 private:
  void read(int out, int err, std::function<void()> wake);
  void signal_group(int signal);

  mutable std::mutex mutex_;  // lines_, status_, pid_
  std::vector<OutputLine> lines_;
  std::optional<ExitStatus> status_;
  pid_t pid_ = 0;                        // 0 once reaped
  std::atomic<int64_t> kill_at_ms_ = 0;  // on the steady clock; 0 = never
  std::thread reader_;
};

}  // namespace taut::gui
