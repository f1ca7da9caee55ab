// A `taut-loader` process as the trainer sees it: started, watched, ended.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace taut::data {

/// Descriptors for the new process, in the order of WorkerFd; -1 = none.
struct WorkerDescriptors {
  int job, taken, output, ring, source;
};

/// Owns the process: it ends with this object.
class WorkerProcess {
 public:
  /// Starts worker `number`. Throws taut::Error if `program` cannot be run.
  WorkerProcess(const std::filesystem::path& program, int64_t number, const WorkerDescriptors& descriptors);
  /// Ends the process if it still runs: asks, and kills it if it is not gone within a second.
  ~WorkerProcess();
  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&&) = delete;

  /// Becomes readable when the worker has said its last words or is gone.
  int life_fd() const { return life_fd_; }
  pid_t pid() const { return pid_; }

  /// Tells the worker to end, without waiting for it.
  void ask_to_end();

  /// Waits for the end that life_fd() announced and says what it was: "cannot read …" (the worker's own words), or
  /// "was killed by signal 9 (Killed)", "exited with code 1".
  struct End {
    std::string what, hint;
    bool own_words = false;
  };
  End end();

 private:
  bool gone_within(int milliseconds);

  pid_t pid_ = -1;
  int life_fd_ = -1;
};

/// `taut-loader` beside this process's own executable. Throws taut::Error if it is not there.
std::filesystem::path loader_program();

}  // namespace taut::data
