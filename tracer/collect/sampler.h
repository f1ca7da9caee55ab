// Memory and CPU of the traced processes, from /proc: one small read a process and sample.
#pragma once

#include <cstdint>
#include <map>

#include "tracer/store/writer.h"

namespace taut::collect {

class Sampler {
 public:
  explicit Sampler(store::Writer& writer) : writer_(writer) {}
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  /// Writes a TAUT_MEMORY row (rss in bytes) and, from the second sample on, a TAUT_COUNTER row "cpu_percent" (100 =
  /// one core) for the process. `time` is ns since the session start. A process that has ended is skipped.
  void sample(int64_t global_pid, int pid, int64_t time);
  void forget(int64_t global_pid);

 private:
  struct Process {
    int fd = -1;  // /proc/<pid>/stat, kept open: it cannot come to mean another process
    int64_t time = 0, cpu_ticks = -1;
  };
  store::Writer& writer_;
  std::map<int64_t, Process> processes_;
  int64_t next_counter_ = 1;
};

}  // namespace taut::collect
