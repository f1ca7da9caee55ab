#include "analyzer/simulate/pipeline.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "runtime/config/pipeline_passes.h"
#include "taut.h"

namespace taut::simulate {
namespace {

using config::Pass;
using config::PassKind;
using config::PipelineSchedule;

void check(const PipelineCosts& costs) {
  const size_t stages = costs.forward.size();
  const bool sizes_agree = costs.backward.size() == stages && (costs.ready.empty() || costs.ready.size() == stages) &&
                           (costs.weight_gradient.empty() || costs.weight_gradient.size() == stages);
  if (stages == 0 || costs.microbatches < 1 || !sizes_agree) {
    throw Error("a pipeline replay needs one forward and one backward time for each stage, and a microbatch");
  }
  const bool interleaves = costs.schedule == PipelineSchedule::interleaved_1f1b;
  if (costs.chunks < 1 || (costs.chunks > 1 && (!interleaves || costs.microbatches % static_cast<int64_t>(stages)))) {
    throw Error(
        "a pipeline replay with several chunks needs interleaved_1f1b and microbatches in groups of its stages");
  }
  const auto negative = [](double t) { return !(t >= 0); };
  if (std::any_of(costs.forward.begin(), costs.forward.end(), negative) ||
      std::any_of(costs.backward.begin(), costs.backward.end(), negative) ||
      std::any_of(costs.weight_gradient.begin(), costs.weight_gradient.end(), negative) ||
      negative(costs.transfer_forward) || negative(costs.transfer_backward)) {
    throw Error("a pipeline replay was given a negative time");
  }
}

}  // namespace

PipelineReplay replay_pipeline(const PipelineCosts& costs) {
  check(costs);
  const size_t p = costs.forward.size(), m = static_cast<size_t>(costs.microbatches),
               virtual_stages = p * static_cast<size_t>(costs.chunks);
  constexpr double kNotYet = -1;
  std::vector<std::vector<Pass>> order(p);
  // By virtual stage chunk · p + stage, whose neighbours are the chunks before and after.
  std::vector<std::vector<double>> forward_end(virtual_stages, std::vector<double>(m, kNotYet));
  std::vector<std::vector<double>> backward_end = forward_end;
  std::vector<size_t> next(p, 0);
  std::vector<double> now(p, 0);
  size_t left = 0;
  PipelineReplay result;
  result.busy.assign(p, 0);
  result.start = std::numeric_limits<double>::max();
  for (size_t s = 0; s < p; ++s) {
    order[s] = config::pipeline_passes(costs.schedule, static_cast<int>(p), static_cast<int>(s), static_cast<int>(m),
                                       static_cast<int>(costs.chunks));
    left += order[s].size();
    if (!costs.ready.empty()) now[s] = std::max(0.0, costs.ready[s]);
  }

  const double forward_transfer = p > 1 ? costs.transfer_forward : 0,
               backward_transfer = p > 1 ? costs.transfer_backward : 0;
  // Every stage runs until its next pass waits for a neighbour; each round finishes at least one pass.
  while (left > 0) {
    for (size_t s = 0; s < p; ++s) {
      for (; next[s] < order[s].size(); ++next[s], --left) {
        const auto [kind, microbatch, chunk] = order[s][next[s]];
        const size_t here = static_cast<size_t>(chunk) * p + s, k = static_cast<size_t>(microbatch);
        double input = 0, length = 0;
        if (kind == PassKind::forward) {
          if (here > 0 && forward_end[here - 1][k] == kNotYet) break;
          if (here > 0) input = forward_end[here - 1][k] + forward_transfer;
          length = costs.forward[s];
        } else if (kind == PassKind::backward) {
          if (here + 1 < virtual_stages && backward_end[here + 1][k] == kNotYet) break;
          if (here + 1 < virtual_stages) input = backward_end[here + 1][k] + backward_transfer;
          length = costs.backward[s];
        } else if (!costs.weight_gradient.empty()) {
          length = costs.weight_gradient[s];
        }
        const double start = std::max(now[s], input);
        now[s] = start + length;
        result.busy[s] += length;
        if (kind == PassKind::forward) {
          forward_end[here][k] = now[s];
          result.start = std::min(result.start, start);
        } else if (kind == PassKind::backward) {
          backward_end[here][k] = now[s];
        }
        result.end = std::max(result.end, now[s]);
      }
    }
  }
  const double busy = std::accumulate(result.busy.begin(), result.busy.end(), 0.0);
  result.bubble_fraction = result.span() > 0 ? 1 - busy / (static_cast<double>(p) * result.span()) : 0;
  return result;
}

}  // namespace taut::simulate
