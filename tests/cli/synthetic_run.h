// Traces of a training run that never took place: every time in them is chosen by the test, so that what a command
// should say about them is known beforehand.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace taut::tests {

/// A data-parallel run without GPU. Every step is: wait for a batch, forward, backward, optimizer, back to back.
struct SyntheticRun {
  int ranks = 2;
  int64_t steps = 12;
  int64_t first_step = 0;
  int64_t tokens = 4096;    // per step and replica
  int workers = 0;          // loader processes; 0 = the trainer reads samples itself
  double read_share = 1.0;  // part of the wait that an inline loader spends in reading
  std::string config;       // TAUT_META "config"; empty = none
  int64_t dropped = 0;      // TAUT_LOSS
  std::string group_name = "world";
  std::function<double(int64_t step, int rank)> wait_ms = [](int64_t, int) { return 0.0; };
  std::function<double(int64_t step, int rank)> compute_ms = [](int64_t, int) { return 50.0; };
  std::function<double(int64_t step)> loss = [](int64_t step) { return 5.0 - 0.01 * double(step); };
};

/// Writes the trace; an older file at `path` is replaced.
void write_trace(const SyntheticRun& run, const std::filesystem::path& path);

/// A folder of this test's own under the system's temporary folder, emptied on creation and removed with the object.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// "<folder>/<name>" as text for command lines.
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::string read_text(const std::filesystem::path& path);
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace taut::tests
