// One rank as a child process: started, listened to, ended.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace taut::launch {

class RankProcess {
 public:
  /// Starts `command` with `environment` (complete, "K=V") as leader of its own process group. Throws taut::Error when
  /// the program cannot be executed.
  static RankProcess start(int rank, const std::vector<std::string>& command,
                           const std::vector<std::string>& environment);

  RankProcess(RankProcess&& other) noexcept;
  RankProcess(const RankProcess&) = delete;
  /// Kills the process group and reaps it, if it still runs.
  ~RankProcess();

  int rank() const { return rank_; }
  int64_t pid() const { return pid_; }
  bool running() const { return running_; }
  /// As waitpid gives it; valid once not running.
  int wait_status() const { return wait_status_; }
  double cpu_s() const { return cpu_s_; }

  /// Read end of its stderr, -1 once closed. Non-blocking.
  int stderr_fd() const { return stderr_fd_; }
  /// Passes what is readable on to our stderr, line by line behind "[rank N] ", and remembers the last lines.
  void pump_stderr();
  const std::deque<std::string>& last_lines() const { return last_lines_; }

  /// Reaps the process if it ended; true exactly once.
  bool reap();
  /// Sends `signal` to the process alone; it decides what becomes of its own children.
  void send(int signal) const;
  /// Kills the process and all that is left of its group.
  void kill_group() const;

 private:
  RankProcess(int rank, int64_t pid, int stderr_fd) : rank_(rank), pid_(pid), running_(true), stderr_fd_(stderr_fd) {}
  void emit_line();

  int rank_ = 0;
  int64_t pid_ = -1;
  bool running_ = false;
  int wait_status_ = 0;
  double cpu_s_ = 0;
  int stderr_fd_ = -1;
  std::string line_;  // the unfinished line
  std::deque<std::string> last_lines_;
};

}  // namespace taut::launch
