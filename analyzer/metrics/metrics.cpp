#include "analyzer/metrics/metrics.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "analyzer/metrics/partition.h"
#include "analyzer/metrics/series.h"
#include "analyzer/metrics/summary.h"

namespace taut::metrics {
namespace {

double ms(int64_t ns) {
  return static_cast<double>(ns) * 1e-6;
}

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

int64_t memory_peak(const timeline::Rank& rank) {
  int64_t device = 0, resident = 0;
  for (const timeline::MemorySample& sample : rank.memory) {
    if (sample.device >= 0) device = std::max(device, sample.allocated);
    resident = std::max(resident, sample.rss);
  }
  return device > 0 ? device : resident;
}

RankMetrics measure_rank(const timeline::Rank& rank, std::vector<StepPartition> partitions, bool has_steps) {
  RankMetrics m;
  m.rank = rank.rank;
  m.dp = rank.dp, m.tp = rank.tp, m.pp = rank.pp, m.cp = rank.cp, m.ep = rank.ep;
  m.memory_peak_bytes = memory_peak(rank);
  PerCategory<int64_t> ns;
  int64_t total = 0, communication = 0, overlapped = 0;
  std::vector<double> durations;
  for (const StepPartition& p : partitions) {
    total += p.duration_ns();
    communication += p.communication_ns;
    overlapped += p.overlapped_ns;
    durations.push_back(ms(p.duration_ns()));
    for (Category c : kAllCategories) ns[c] += p.ns[c];
  }
  if (has_steps) {
    m.steps = static_cast<int64_t>(partitions.size());
    m.step_ms_median = median(durations);
    m.step_ms_p95 = quantile(durations, 0.95);
  }
  for (Category c : kAllCategories) m.breakdown[c] = share(ns[c], total);
  m.utilization = m.breakdown[Category::compute];
  m.communication_share = share(communication, total);
  if (communication > 0) m.overlap = share(overlapped, communication);
  m.partitions = std::move(partitions);
  return m;
}

template <class Value>
double median_over_steps(const RankMetrics& rank, Value value) {
  std::vector<double> values;
  for (const StepPartition& p : rank.partitions) values.push_back(value(p));
  return median(std::move(values));
}

template <class Value>
double mean_over_ranks(const std::vector<RankMetrics>& ranks, Value value) {
  std::vector<double> values;
  for (const RankMetrics& rank : ranks) {
    if (!rank.partitions.empty()) values.push_back(median_over_steps(rank, value));
  }
  return mean(values);
}

double slowest_rank_step_ms(const std::vector<RankMetrics>& ranks) {
  std::map<int64_t, int64_t> slowest;
  for (const RankMetrics& rank : ranks) {
    if (rank.steps == 0) continue;
    for (const StepPartition& p : rank.partitions) slowest[p.step] = std::max(slowest[p.step], p.duration_ns());
  }
  std::vector<double> durations;
  for (const auto& [step, ns] : slowest) durations.push_back(ms(ns));
  return median(std::move(durations));
}

// Global tokens over wall time. Every data-parallel replica counts once, whichever of its ranks says how many it
// trained on.
double tokens_per_second(const timeline::Timeline& timeline, const StepRange& range) {
  struct Window {
    int64_t start = std::numeric_limits<int64_t>::max(), end = std::numeric_limits<int64_t>::min();
    std::map<int32_t, int64_t> tokens;  // by dp
  };
  std::map<int64_t, Window> windows;
  for (const timeline::Rank& rank : timeline.ranks) {
    for (const timeline::Step& step : rank.steps) {
      if (!range.contains(step.step)) continue;
      Window& window = windows[step.step];
      window.start = std::min(window.start, step.start);
      window.end = std::max(window.end, step.end);
      int64_t& tokens = window.tokens[rank.dp];
      tokens = std::max(tokens, step.tokens);
    }
  }
  if (windows.empty()) return 0;
  double tokens = 0;
  int64_t wall = 0;
  for (const auto& [step, window] : windows) {
    for (const auto& [dp, count] : window.tokens) tokens += static_cast<double>(count);
    wall += window.end - window.start;
  }
  const auto [first, last] = std::pair(windows.begin(), std::prev(windows.end()));
  const bool consecutive = last->first - first->first + 1 == static_cast<int64_t>(windows.size());
  if (consecutive) wall = last->second.end - first->second.start;  // with the time between steps
  return wall > 0 ? tokens / (static_cast<double>(wall) * 1e-9) : 0;
}

}  // namespace

const char* category_name(Category category) {
  switch (category) {
    case Category::compute:
      return "compute";
    case Category::exposed_communication:
      return "exposed_communication";
    case Category::loader_stall:
      return "loader_stall";
    case Category::pipeline_bubble:
      return "pipeline_bubble";
    case Category::copy:
      return "copy";
    case Category::checkpoint:
      return "checkpoint";
    case Category::host:
      return "host";
    case Category::idle:
      break;
  }
  return "idle";
}

Metrics measure(const timeline::Timeline& timeline, const StepRange& range) {
  const Partitioner partitioner(timeline);
  const bool has_steps = timeline.step_source != timeline::StepSource::none;
  Metrics metrics;
  std::set<int64_t> steps;
  for (const timeline::Rank& rank : timeline.ranks) {
    auto partitions = has_steps ? partitioner.partition(rank, range) : partitioner.partition_whole_span(rank);
    if (has_steps) {
      for (const StepPartition& p : partitions) steps.insert(p.step);
    }
    metrics.ranks.push_back(measure_rank(rank, std::move(partitions), has_steps));
  }
  metrics.steps.assign(steps.begin(), steps.end());

  Summary& summary = metrics.summary;
  const auto& ranks = metrics.ranks;
  summary.step_ms = slowest_rank_step_ms(ranks);
  summary.tokens_per_s = tokens_per_second(timeline, range);
  summary.mfu = measure_mfu(timeline, summary.tokens_per_s);
  summary.utilization =
      mean_over_ranks(ranks, [](const StepPartition& p) { return share(p.ns[Category::compute], p.duration_ns()); });
  summary.communication_share =
      mean_over_ranks(ranks, [](const StepPartition& p) { return share(p.communication_ns, p.duration_ns()); });
  summary.loader_stall_share = mean_over_ranks(
      ranks, [](const StepPartition& p) { return share(p.ns[Category::loader_stall], p.duration_ns()); });
  std::vector<double> overlaps;
  for (const RankMetrics& rank : ranks) {
    if (rank.overlap) overlaps.push_back(*rank.overlap);
  }
  if (!overlaps.empty()) summary.overlap = mean(overlaps);
  if (const auto bubble = measure_bubble(timeline, range)) {
    summary.bubble_fraction = bubble->measured;
    summary.ideal_bubble_fraction = bubble->ideal;
  }
  const Straggling straggling = measure_straggling(ranks, summary.step_ms);
  summary.slowdown = straggling.slowdown;
  summary.straggler = straggling.straggler;
  metrics.critical_path = trace_critical_path(ranks);
  return metrics;
}

}  // namespace taut::metrics
