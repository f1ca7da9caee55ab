// What the trace shows of data loading: who asked when, and what preparing a batch cost. Input of the loader-stall
// rule.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "analyzer/detect/rule.h"
#include "analyzer/simulate/loader_queue.h"

namespace taut::detect {

/// Mean milliseconds a batch spends in each phase of preparation (waiting for a free slot not included).
struct ServicePhases {
  double read = 0, tokenize = 0, pack = 0, hand_over = 0;
  double total() const { return read + tokenize + pack + hand_over; }
};

struct LoaderProfile {
  std::vector<simulate::LoaderTrainer> trainers;  // one per rank of the trace, for the replay
  std::vector<int32_t> ranks;                     // that load
  int64_t workers = 0;                            // per loading rank, as traced
  double requests_per_step = 0;                   // of one loading rank
  double step_ms = 0;                             // mean of the slowest rank's steps
  double stall_ms = 0;                            // mean per step of the rank that stalls most
  double queue_depth = 0;                         // mean number of batches ready when one was asked for
  ServicePhases phases;
  bool phases_known = false;            // false: service times are inferred from arrivals
  double cpu_ms_per_batch = 0;          // of service, what needs a processor rather than waits for storage
  double trainers_cpu_ms_per_step = 0;  // all ranks' own work in a step
};

/// Empty when no rank of the trace asked a loader for batches in the analysed steps. The step that stalls longest is
/// left out of the means when there are several: one slow step (the first) is no pattern.
std::optional<LoaderProfile> profile_loader(const Facts& facts);

}  // namespace taut::detect
