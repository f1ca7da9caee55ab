#include "tracer/collect/sampler.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <utility>

namespace taut::collect {

using store::TableId;

Sampler::~Sampler() {
  for (const auto& [pid, process] : processes_)
    if (process.fd >= 0) close(process.fd);
}

void Sampler::forget(int64_t global_pid) {
  const auto found = processes_.find(global_pid);
  if (found == processes_.end()) return;
  if (found->second.fd >= 0) close(found->second.fd);
  processes_.erase(found);
}

void Sampler::sample(int64_t global_pid, int pid, int64_t time) {
  const auto [at, added] = processes_.try_emplace(global_pid);
  Process& process = at->second;
  if (added) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    process.fd = open(path, O_RDONLY | O_CLOEXEC);
  }
  char text[1024];
  const ssize_t got = process.fd < 0 ? -1 : pread(process.fd, text, sizeof text - 1, 0);
  if (got <= 0) return;
  text[got] = '\0';
  const char* after_name = strrchr(text, ')');  // the name may hold anything
  unsigned long long user = 0, system = 0;
  long long rss_pages = 0;
  if (!after_name || sscanf(after_name + 1,
                            " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %*d "
                            "%*d %*u %*u %lld",
                            &user, &system, &rss_pages) != 3)
    return;
  static const long page = sysconf(_SC_PAGESIZE), ticks_per_second = sysconf(_SC_CLK_TCK);
  writer_.insert(TableId::TAUT_MEMORY, {global_pid, time, nullptr, nullptr, nullptr, int64_t{rss_pages} * page});
  const auto ticks = static_cast<int64_t>(user + system);
  if (process.cpu_ticks >= 0 && time > process.time) {
    const double seconds = static_cast<double>(ticks - process.cpu_ticks) / static_cast<double>(ticks_per_second);
    const double percent = 100.0 * seconds / (static_cast<double>(time - process.time) * 1e-9);
    writer_.insert(TableId::TAUT_COUNTER, {next_counter_++, time, global_pid, "cpu_percent", percent});
  }
  process.time = time;
  process.cpu_ticks = ticks;
}

}  // namespace taut::collect
