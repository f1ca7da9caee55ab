// The analyzer's public door: a trace file in, numbers and findings out.
//
//   auto timeline = taut::timeline::load("run.db");
//   auto analysis = taut::analyzer::analyze(timeline, {});
//
// `analyzer/report` prints an Analysis, `analyzer/tune` turns its suggestions into a config. Pure functions; a Timeline
// may be shared by threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/detect/finding.h"
#include "analyzer/metrics/metrics.h"
#include "analyzer/metrics/statistics.h"
#include "analyzer/timeline/timeline.h"

namespace taut::analyzer {

struct Options {
  /// Half-open; both bounds absent = all steps but the first, which warms up, when there are more than three.
  metrics::StepRange steps;
  /// Report this rank only (findings still look at all ranks). Throws taut::Error when the trace has no such rank.
  std::optional<int32_t> rank;
};

struct TraceInfo {
  std::string path;
  int64_t ranks = 0;
  int64_t steps = 0;      // distinct steps analysed
  double duration_s = 0;  // of the whole trace
  int64_t events = 0;
};

struct Quality {
  int64_t dropped_events = 0, clock_error_ns = 0, unmatched_correlations = 0;
  std::vector<std::string> warnings;
};

/// The content of `taut analyze --format json`.
struct Analysis {
  TraceInfo trace;
  Quality quality;
  std::vector<metrics::RankMetrics> ranks;
  metrics::Summary summary;
  std::vector<metrics::CriticalPathShare> critical_path;
  std::vector<detect::Finding> findings;  // most costly first
};

/// Measures and runs every rule. Throws taut::Error when `options` ask for steps or a rank that the trace lacks.
Analysis analyze(const timeline::Timeline& timeline, const Options& options = {});

}  // namespace taut::analyzer
