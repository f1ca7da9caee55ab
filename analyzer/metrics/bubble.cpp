// The bubble of every pipeline: 1 - sum of its stages' busy time / (stages × span), span from the first forward start
// to the last pass's end.
#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "analyzer/metrics/intervals.h"
#include "analyzer/metrics/series.h"
#include "analyzer/metrics/summary.h"
#include "runtime/config/pipeline_math.h"

namespace taut::metrics {

std::optional<Bubble> measure_bubble(const timeline::Timeline& timeline, const StepRange& range) {
  struct PipelineStep {
    int64_t start = std::numeric_limits<int64_t>::max(), end = std::numeric_limits<int64_t>::min();
    int64_t busy_ns = 0;
    std::set<int32_t> stages;
    std::set<int32_t> microbatches;
    int32_t chunks = 1;
    bool splits_backward = false;
  };
  std::map<std::tuple<int32_t, int32_t, int32_t, int64_t>, PipelineStep> pipelines;  // dp, tp, cp, step
  for (const timeline::Rank& rank : timeline.ranks) {
    std::map<int64_t, std::vector<Interval>> busy;
    for (const timeline::Microbatch& pass : rank.microbatches) {
      if (!range.contains(pass.step)) continue;
      PipelineStep& p = pipelines[{rank.dp, rank.tp, rank.cp, pass.step}];
      p.start = std::min(p.start, pass.start);
      p.end = std::max(p.end, pass.end);
      p.stages.insert(rank.pp);
      p.chunks = std::max(p.chunks, pass.chunk + 1);
      p.splits_backward |= pass.pass == 'W';
      if (pass.pass == 'F') p.microbatches.insert(pass.microbatch);
      busy[pass.step].push_back({pass.start, pass.end});
    }
    for (auto& [step, intervals] : busy) {
      pipelines[{rank.dp, rank.tp, rank.cp, step}].busy_ns += length(normalize(std::move(intervals)));
    }
  }

  std::vector<double> measured, ideal;
  for (const auto& [key, p] : pipelines) {
    const int64_t stages = static_cast<int64_t>(p.stages.size());
    if (stages < 2 || p.end <= p.start || p.microbatches.empty()) continue;
    measured.push_back(1 - static_cast<double>(p.busy_ns) / static_cast<double>(stages * (p.end - p.start)));
    using config::PipelineSchedule;
    // gpipe has 1f1b's bubble.
    const PipelineSchedule schedule = p.splits_backward ? PipelineSchedule::zero_bubble
                                      : p.chunks > 1    ? PipelineSchedule::interleaved_1f1b
                                                        : PipelineSchedule::one_f_one_b;
    ideal.push_back(
        config::ideal_bubble_fraction(schedule, stages, static_cast<int64_t>(p.microbatches.size()), p.chunks));
  }
  if (measured.empty()) return std::nullopt;
  return Bubble{mean(measured), mean(ideal)};
}

}  // namespace taut::metrics
