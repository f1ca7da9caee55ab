// From partitions to the numbers of a run. Internal to this folder; see metrics.h.
#pragma once

#include <optional>
#include <vector>

#include "analyzer/metrics/metrics.h"
#include "analyzer/timeline/timeline.h"

namespace taut::metrics {

/// Measured and ideal bubble of the pipelines, mean over pipelines and steps.
struct Bubble {
  double measured = 0, ideal = 0;
};
std::optional<Bubble> measure_bubble(const timeline::Timeline& timeline, const StepRange& range);

/// The slowest rank against its peers of the same stage, by their own work (waits for peers and transfers left out).
struct Straggling {
  double slowdown = 1;
  std::optional<Straggler> straggler;
};
Straggling measure_straggling(const std::vector<RankMetrics>& ranks, double step_ms);

/// Achieved over peak model FLOPs; empty unless the trace names its model and devices of known peak.
std::optional<double> measure_mfu(const timeline::Timeline& timeline, double tokens_per_s);

std::vector<CriticalPathShare> trace_critical_path(const std::vector<RankMetrics>& ranks);

}  // namespace taut::metrics
