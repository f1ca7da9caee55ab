// Who holds the others up: every rank's own work against what is typical for its peers.
#include <algorithm>
#include <map>

#include "analyzer/metrics/series.h"
#include "analyzer/metrics/summary.h"

namespace taut::metrics {
namespace {

// Below this a slowest rank is noise: someone always is.
constexpr double kLeastExcessShare = 0.03;

// What the rank did itself: everything but waiting for peers and for bytes in flight.
double own_ms(const StepPartition& p) {
  int64_t ns = p.duration_ns();
  for (const Segment& s : p.segments) {
    if (s.waits_for >= 0 || s.category == Category::exposed_communication) ns -= s.end - s.start;
  }
  return static_cast<double>(ns) * 1e-6;
}

}  // namespace

Straggling measure_straggling(const std::vector<RankMetrics>& ranks, double step_ms) {
  struct Member {
    int32_t rank;
    double own_ms;
  };
  std::map<int32_t, std::vector<Member>> stages;  // peers do the same work: ranks of one pipeline stage
  for (const RankMetrics& rank : ranks) {
    std::vector<double> own;
    for (const StepPartition& p : rank.partitions) own.push_back(own_ms(p));
    if (rank.steps > 0 && !own.empty()) stages[rank.pp].push_back({rank.rank, median(own)});
  }
  double worst_excess_ms = 0;
  int32_t worst_rank = 0;
  for (const auto& [stage, members] : stages) {
    for (const Member& member : members) {
      std::vector<double> peers;
      for (const Member& other : members) {
        if (other.rank != member.rank) peers.push_back(other.own_ms);
      }
      if (peers.empty()) continue;
      const double excess_ms = member.own_ms - median(peers);
      if (excess_ms > worst_excess_ms) {
        worst_excess_ms = excess_ms;
        worst_rank = member.rank;
      }
    }
  }
  Straggling result;
  if (step_ms <= worst_excess_ms) return result;
  result.slowdown = step_ms / (step_ms - worst_excess_ms);
  const double excess_share = worst_excess_ms / step_ms;
  if (excess_share >= kLeastExcessShare) result.straggler = Straggler{worst_rank, excess_share};
  return result;
}

}  // namespace taut::metrics
