// Steps of traces that carry no TAUT_STEP: PyTorch's ProfilerStep# ranges, else the time between two Optimizer.step#.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "analyzer/timeline/loading.h"

namespace taut::timeline {
namespace {

constexpr std::string_view kProfilerStep = "ProfilerStep#", kOptimizerStep = "Optimizer.step#";

struct Range {
  int64_t start, end, rowid;
  std::string_view suffix;  // what follows the prefix in the name
};

std::vector<Range> ranges_named(const Timeline& timeline, const Rank& rank, std::string_view prefix) {
  std::vector<Range> ranges;
  for (uint32_t index : rank.lanes) {
    const Slices& slices = timeline.lanes[index].slices;
    for (size_t i = 0; i < slices.size(); ++i) {
      const std::string_view name = timeline.names[slices.name[i]];
      if (slices.table[i] != Table::nvtx || !name.starts_with(prefix)) continue;
      ranges.push_back({slices.start[i], slices.end[i], slices.rowid[i], name.substr(prefix.size())});
    }
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.start < b.start; });
  return ranges;
}

bool from_profiler_steps(const Timeline& timeline, Rank& rank) {
  int64_t next = 0;
  for (const Range& range : ranges_named(timeline, rank, kProfilerStep)) {
    int64_t number = next;
    std::from_chars(range.suffix.data(), range.suffix.data() + range.suffix.size(), number);
    rank.steps.push_back({number, range.start, range.end, 0, std::nan(""), range.rowid});
    next = number + 1;
  }
  return !rank.steps.empty();
}

bool from_optimizer_steps(const Timeline& timeline, Rank& rank) {
  const auto ranges = ranges_named(timeline, rank, kOptimizerStep);
  for (size_t i = 1; i < ranges.size(); ++i) {
    rank.steps.push_back(
        {static_cast<int64_t>(i) - 1, ranges[i - 1].end, ranges[i].end, 0, std::nan(""), ranges[i].rowid});
  }
  return !rank.steps.empty();
}

}  // namespace

void find_steps(Draft& draft) {
  Timeline& timeline = draft.timeline;
  if (timeline.step_source == StepSource::taut) return;
  for (Rank& rank : timeline.ranks) {
    if (from_profiler_steps(timeline, rank)) timeline.step_source = StepSource::profiler_step;
  }
  if (timeline.step_source != StepSource::none) return;
  for (Rank& rank : timeline.ranks) {
    if (from_optimizer_steps(timeline, rank)) timeline.step_source = StepSource::optimizer_step;
  }
}

}  // namespace taut::timeline
