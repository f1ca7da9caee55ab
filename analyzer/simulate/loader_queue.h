// Replay of trainers that take batches from loader workers: how long would they stall with other settings?
//
// Worker j of a rank prepares batches j, j+w, j+2w, … one after another and may be `prefetch` finished batches ahead of
// its trainer; the trainer takes batches in order. Without workers it prepares each batch itself. All trainers meet at
// the end of every step (gradient reduction), so one rank's stall is everybody's.
#pragma once

#include <cstdint>
#include <vector>

namespace taut::simulate {

/// What one rank did between its requests, and what its batches cost; times in milliseconds. `think_ms[s]` holds, for
/// step s, the rank's own work before each request and, last, after the last one: requests per step + 1 values.
struct LoaderTrainer {
  std::vector<std::vector<double>> think_ms;
  std::vector<double> service_ms;  // of successive batches, used cyclically; a worker's busy time for one
  double take_ms = 0;              // what taking a finished batch costs the trainer
};

struct LoaderSettings {
  int64_t workers = 0, prefetch = 2;
};

struct LoaderReplay {
  double step_ms = 0;         // mean over steps, warm-up excluded
  double step_ms_median = 0;  // the same, less moved by single slow steps
  double stall_ms = 0;        // mean over ranks and steps
};

/// Replays the steps several times over, so that start-up does not count. All trainers must have equally many steps.
/// O(steps × requests × ranks). Throws taut::Error when there is nothing to replay.
LoaderReplay replay_loader(const std::vector<LoaderTrainer>& trainers, const LoaderSettings& settings);

}  // namespace taut::simulate
