#include "analyzer/simulate/pipeline.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "taut.h"

namespace taut::simulate {
namespace {

struct Pass {
  bool forward;
  int64_t microbatch;
};

// The order in which a stage runs its passes.
std::vector<Pass> stage_order(Schedule schedule, int64_t stage, int64_t stages, int64_t microbatches) {
  const int64_t warmup =
      schedule == Schedule::gpipe ? microbatches : std::min<int64_t>(stages - 1 - stage, microbatches);
  std::vector<Pass> order;
  for (int64_t k = 0; k < warmup; ++k) order.push_back({true, k});
  int64_t backward = 0;
  for (int64_t k = warmup; k < microbatches; ++k) {
    order.push_back({true, k});
    order.push_back({false, backward++});
  }
  while (backward < microbatches) order.push_back({false, backward++});
  return order;
}

void check(const PipelineCosts& costs) {
  const size_t stages = costs.forward.size();
  const bool sizes_agree = costs.backward.size() == stages && (costs.ready.empty() || costs.ready.size() == stages);
  if (stages == 0 || costs.microbatches < 1 || !sizes_agree) {
    throw Error("a pipeline replay needs one forward and one backward time for each stage, and a microbatch");
  }
  const auto negative = [](double t) { return !(t >= 0); };
  if (std::any_of(costs.forward.begin(), costs.forward.end(), negative) ||
      std::any_of(costs.backward.begin(), costs.backward.end(), negative) || negative(costs.transfer_forward) ||
      negative(costs.transfer_backward)) {
    throw Error("a pipeline replay was given a negative time");
  }
}

}  // namespace

PipelineReplay replay_pipeline(const PipelineCosts& costs) {
  check(costs);
  const int64_t p = static_cast<int64_t>(costs.forward.size()), m = costs.microbatches;
  constexpr double kNotYet = -1;
  std::vector<std::vector<Pass>> order(p);
  std::vector<std::vector<double>> forward_end(p, std::vector<double>(m, kNotYet));
  std::vector<std::vector<double>> backward_end = forward_end;
  std::vector<size_t> next(p, 0);
  std::vector<double> now(p, 0);
  for (int64_t s = 0; s < p; ++s) {
    order[s] = stage_order(costs.schedule, s, p, m);
    if (!costs.ready.empty()) now[s] = std::max(0.0, costs.ready[s]);
  }

  PipelineReplay result;
  result.start = std::numeric_limits<double>::max();
  // Every stage runs until its next pass waits for a neighbour; each round finishes at least one pass.
  for (int64_t left = 2 * p * m; left > 0;) {
    for (int64_t s = 0; s < p; ++s) {
      while (next[s] < order[s].size()) {
        const auto [is_forward, k] = order[s][next[s]];
        double input = 0;
        if (is_forward && s > 0) {
          if (forward_end[s - 1][k] == kNotYet) break;
          input = forward_end[s - 1][k] + costs.transfer_forward;
        } else if (!is_forward && s < p - 1) {
          if (backward_end[s + 1][k] == kNotYet) break;
          input = backward_end[s + 1][k] + costs.transfer_backward;
        }
        const double start = std::max(now[s], input);
        now[s] = start + (is_forward ? costs.forward[s] : costs.backward[s]);
        (is_forward ? forward_end : backward_end)[s][k] = now[s];
        if (is_forward) result.start = std::min(result.start, start);
        result.end = std::max(result.end, now[s]);
        ++next[s];
        --left;
      }
    }
  }
  for (int64_t s = 0; s < p; ++s) {
    result.busy.push_back(static_cast<double>(m) * (costs.forward[s] + costs.backward[s]));
  }
  const double busy = std::accumulate(result.busy.begin(), result.busy.end(), 0.0);
  result.bubble_fraction = result.span() > 0 ? 1 - busy / (static_cast<double>(p) * result.span()) : 0;
  return result;
}

double ideal_bubble_fraction(int64_t stages, int64_t microbatches) {
  return static_cast<double>(stages - 1) / static_cast<double>(microbatches + stages - 1);
}

}  // namespace taut::simulate
