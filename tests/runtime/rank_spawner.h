// Starts taut-worker processes as `taut train` would and reads their per-step lines.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace taut::testing {

struct StepLine {
  int64_t step = 0;
  double loss = 0, grad_norm = 0, lr = 0;
};

struct RunResult {
  std::vector<int> exit_codes;      // per rank; 128 + signal for a killed one
  std::vector<StepLine> steps;      // of the rank that reports
  std::vector<std::string> errors;  // per rank: its stderr
  double seconds = 0;               // until the last rank ended

  bool ok() const;
  std::string all_errors() const;
};

/// A training job of `ranks` processes on this machine.
struct Job {
  int ranks = 1;
  std::filesystem::path config = {};
  std::vector<std::string> arguments = {};
  int kill_rank = -1;  // killed by SIGKILL as soon as the first step line is out
};

/// Runs the job to its end in `folder` (log files go there).
RunResult run_job(const Job& job, const std::filesystem::path& folder);

/// A small training config with `changes` merged in (RFC 7386), and its corpus, written to `folder`.
std::filesystem::path write_config(const std::filesystem::path& folder,
                                   const nlohmann::json& changes = nlohmann::json::object());

/// A folder that is removed with everything in it.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace taut::testing
