// The critical path through each step: from the end of the slowest rank's step backwards in time; where the rank waited
// for a peer, the path goes on at that peer.
#include <algorithm>
#include <map>

#include "analyzer/metrics/summary.h"

namespace taut::metrics {
namespace {

using StepOfRank = std::map<int32_t, const StepPartition*>;

const Segment* segment_before(const StepPartition& partition, int64_t time) {
  const auto after = std::partition_point(partition.segments.begin(), partition.segments.end(),
                                          [&](const Segment& s) { return s.start < time; });
  return after == partition.segments.begin() ? nullptr : &*std::prev(after);
}

void walk(const StepOfRank& step, PerCategory<int64_t>& ns) {
  const auto slowest = std::max_element(step.begin(), step.end(),
                                        [](const auto& a, const auto& b) { return a.second->end < b.second->end; });
  int32_t rank = slowest->first;
  int64_t time = slowest->second->end;
  size_t hops_without_progress = 0;
  while (true) {
    const Segment* segment = segment_before(*step.at(rank), time);
    if (!segment) return;
    const bool can_hop =
        segment->waits_for >= 0 && step.contains(segment->waits_for) && hops_without_progress < step.size();
    if (can_hop) {
      rank = segment->waits_for;
      ++hops_without_progress;
      continue;
    }
    const int64_t end = std::min(time, segment->end);
    ns[segment->category] += end - segment->start;
    time = segment->start;
    hops_without_progress = 0;
  }
}

}  // namespace

std::vector<CriticalPathShare> trace_critical_path(const std::vector<RankMetrics>& ranks) {
  std::map<int64_t, StepOfRank> steps;
  for (const RankMetrics& rank : ranks) {
    for (const StepPartition& p : rank.partitions) steps[p.step][rank.rank] = &p;
  }
  PerCategory<int64_t> ns;
  for (const auto& [number, step] : steps) walk(step, ns);
  int64_t total = 0;
  for (Category c : kAllCategories) total += ns[c];
  std::vector<CriticalPathShare> shares;
  for (Category c : kAllCategories) {
    if (ns[c] > 0) shares.push_back({c, static_cast<double>(ns[c]) / static_cast<double>(total)});
  }
  std::stable_sort(shares.begin(), shares.end(),
                   [](const CriticalPathShare& a, const CriticalPathShare& b) { return a.share > b.share; });
  return shares;
}

}  // namespace taut::metrics
