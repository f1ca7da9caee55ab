// Before and after: two runs (or two sets of runs), what changed per step, why, and whether it is more than noise.
//
//   const auto before = read_side("before.db"), after = read_side("after.db");
//   const Comparison result = compare(before, after);
//
// The verdict is judge.h's. Steps are those that analyzer::analyze looks at by default (the first one warms up); when
// both runs have enough of the same step numbers, only these are used and step k is set against step k.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/analyzer.h"
#include "analyzer/tune/judge.h"
#include "runtime/config/load.h"

namespace taut::tune {

/// One analysed trace, reduced to what a comparison needs.
struct Run {
  std::string path;
  analyzer::Analysis analysis;
  config::Json config = nullptr;      // effective config of the run; null = unknown
  std::map<int64_t, double> step_ms;  // step number -> slowest rank's time
  std::map<int64_t, double> losses;   // every traced step that has one
  double tokens_per_step = 0;         // global; 0 = unknown
};

/// The runs on one side of a comparison; at least one.
using Side = std::vector<Run>;

Run make_run(const timeline::Timeline& timeline);

/// A trace file, or a folder whose traces (*.db, *.sqlite) are runs of one configuration. Throws taut::Error.
Side read_side(const std::filesystem::path& path);

/// The row of the before/after table: medians over a side's runs. Shares are 0…1.
struct SideNumbers {
  std::string path;
  int64_t runs = 0, ranks = 0, steps = 0;  // steps = those compared, all runs together
  double step_ms = 0, tokens_per_s = 0, utilization = 0, loader_stall_share = 0, communication_share = 0;
  std::optional<double> bubble_fraction, mfu;
};

/// Milliseconds per step spent in a category, mean over ranks and steps.
struct CategoryChange {
  metrics::Category category = metrics::Category::idle;
  double a_ms = 0, b_ms = 0;
};

/// What A's findings promised for exactly the suggestions that B's config carries, and what came of it.
struct PredictionCheck {
  std::vector<std::string> suggestions;   // ids in A's report
  double step_ms = 0, low = 0, high = 0;  // predicted
  double measured_step_ms = 0;
  std::vector<std::string> other_changes;  // config keys that changed besides; the prediction does not know them
};

struct Comparison {
  SideNumbers a, b;
  Judgement judgement;
  std::vector<CategoryChange> categories;  // in the order of metrics::kAllCategories
  std::optional<bool> losses_equal;        // empty when a side has no losses or no common step
  std::optional<double> max_loss_diff;
  double loss_tolerance = 0;
  int64_t losses_compared = 0;
  std::vector<config::Change> config_changes;
  std::optional<PredictionCheck> prediction;
  std::vector<std::string> warnings;  // why the two may not be comparable
};

/// Compares B with A. Losses count as equal within 1e-4 in fp32 and 2e-2 in bf16 or fp16, whose sums depend on the
/// order of additions by about that much. Throws taut::Error when a side has no steps.
Comparison compare(const Side& a, const Side& b, const JudgeOptions& options = {});

}  // namespace taut::tune
