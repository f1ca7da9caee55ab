// An opened trace with everything that panels draw, computed once. Immutable afterwards; frames only read it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "analyzer/analyzer.h"
#include "analyzer/report/report.h"
#include "analyzer/tune/compare.h"
#include "gui/app/task.h"
#include "gui/timeline/tracks.h"

namespace taut::gui {

/// A suggestion as the findings panel shows it.
struct SuggestionText {
  std::vector<std::pair<char, std::string>> diff;  // '-' or '+' and the line
  std::string prediction;
};

/// A finding as the findings panel shows it, index for index with Analysis::findings.
struct FindingText {
  std::string cost;
  std::vector<std::string> evidence;
  std::vector<SuggestionText> suggestions;
};

/// Step times over all ranks, for the step graph: index for index. Long runs are thinned out to the slowest steps of
/// each stretch.
struct StepSeries {
  std::vector<double> step, slowest_ms, fastest_ms, slow_step, slow_ms;  // slow_* = more than 1.25 × the median
  double median_ms = 0;
};

struct Document {
  std::string path, name;  // name = file name
  timeline::Timeline timeline;
  std::vector<Track> tracks;
  tune::Run run;                  // holds the analysis
  config::Json config = nullptr;  // effective config stored in the trace; null = none
  StepSeries steps;
  std::vector<FindingText> findings;
  std::string scope;  // "2 ranks, 39 of 40 steps analysed, …"
  std::vector<std::string> caveats;
  std::string mesh;  // "dp 2", "tp 2 · pp 2"; empty = unknown

  const analyzer::Analysis& analysis() const { return run.analysis; }
};

/// Reads and analyses a trace, calling progress.enter() between its phases. Throws taut::Error as timeline::load does.
std::shared_ptr<const Document> load_document(const std::filesystem::path& path, Progress& progress);

}  // namespace taut::gui
