// Traces of training runs that look like real ones: data-parallel ranks whose loader processes read from slow storage,
// with nested operators, overlapping all-reduces and steps. Times follow from a small queue, so they are known
// beforehand.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace taut::test {

struct TracedRun {
  int ranks = 2, workers = 1;  // workers a rank
  int64_t steps = 40;
  double read_ms = 20;  // per sample
  int samples = 8;      // per batch
  int layers = 4;
  bool with_ops = true;  // LibTorch operators within the passes
};

/// The training config of such a run, as its trace stores it. `data_path` need not exist.
nlohmann::json traced_config(const TracedRun& run, const std::string& data_path);

/// Writes the trace; returns the median step time in ms. Replaces a file at `path`.
double write_traced_run(const TracedRun& run, const nlohmann::json& config, const std::filesystem::path& path);

}  // namespace taut::test
