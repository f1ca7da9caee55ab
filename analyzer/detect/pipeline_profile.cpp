#include "analyzer/detect/pipeline_profile.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "analyzer/metrics/peers.h"
#include "analyzer/metrics/series.h"

namespace taut::detect {
namespace {

using metrics::Category;
using timeline::Kind;
using timeline::Lane;
using timeline::Microbatch;
using timeline::Op;
using timeline::Rank;

double ms(int64_t ns) {
  return static_cast<double>(ns) * 1e-6;
}

// Operations whose time depends on the parameters, not on the microbatch.
constexpr std::string_view kFixedOperations[] = {"AccumulateGrad"};
constexpr int64_t kMostPasses = 1 << 20;   // stages × microbatches of a step that a replay may cost
constexpr double kFixedShareGuess = 0.05;  // without operations in the trace
constexpr double kFastestQuantile = 0.25;  // operations this fast do next to nothing but start

bool is_fixed(std::string_view name) {
  return std::any_of(std::begin(kFixedOperations), std::end(kFixedOperations),
                     [&](std::string_view fixed) { return name.ends_with(fixed); });
}

// Index of a pass's kind: F, B, W.
size_t pass_kind(char pass) {
  return pass == 'F' ? 0 : pass == 'B' ? 1 : 2;
}

// What does not shrink with the microbatch in the passes of one rank: starting each operation, and the operations whose
// cost lies in the parameters. Means per pass of a kind; empty when the trace has no operations inside
// passes.
using FixedTimes = std::array<double, 3>;  // by pass_kind
std::optional<FixedTimes> fixed_times(const timeline::Timeline& timeline, const Rank& rank, const Facts& facts) {
  if (rank.trainer_lane < 0) return std::nullopt;
  const auto& slices = timeline.lanes[static_cast<size_t>(rank.trainer_lane)].slices;
  struct Totals {
    double passes = 0, operations = 0, fixed_ms = 0;
  };
  Totals totals[3];  // by pass_kind
  std::vector<double> self_times;
  std::vector<int64_t> self(slices.size(), 0);
  for (size_t i = 0; i < slices.size(); ++i) {
    self[i] += slices.end[i] - slices.start[i];
    if (slices.parent[i] >= 0) self[static_cast<size_t>(slices.parent[i])] -= slices.end[i] - slices.start[i];
  }
  for (const Microbatch& pass : rank.microbatches) {
    if (!facts.steps.contains(pass.step)) continue;
    Totals& total = totals[pass_kind(pass.pass)];
    total.passes += 1;
    const auto first = std::lower_bound(slices.start.begin(), slices.start.end(), pass.start);
    int64_t fixed_until = std::numeric_limits<int64_t>::min();  // inside a fixed operation already counted as a whole
    for (size_t i = static_cast<size_t>(first - slices.start.begin()); i < slices.size() && slices.start[i] < pass.end;
         ++i) {
      if (slices.kind[i] != Kind::compute || slices.rowid[i] == pass.event_rowid || slices.start[i] < fixed_until)
        continue;
      if (is_fixed(timeline.names[slices.name[i]])) {
        total.fixed_ms += ms(slices.end[i] - slices.start[i]);
        fixed_until = slices.end[i];
      } else {
        total.operations += 1;
        self_times.push_back(ms(std::max<int64_t>(0, self[i])));
      }
    }
  }
  if (self_times.empty() || totals[0].passes == 0 || totals[1].passes == 0) return std::nullopt;
  const double start_ms = metrics::quantile(std::move(self_times), kFastestQuantile);
  const auto per_pass = [&](const Totals& t) {
    return t.passes > 0 ? (t.operations * start_ms + t.fixed_ms) / t.passes : 0.0;
  };
  return FixedTimes{per_pass(totals[0]), per_pass(totals[1]), per_pass(totals[2])};
}

struct StepWindow {
  int64_t start = std::numeric_limits<int64_t>::max(), end = std::numeric_limits<int64_t>::min();
  std::map<int32_t, int64_t> busy;  // stage -> passes
  std::set<int32_t> microbatches;
  int32_t chunks = 1;
  bool splits_backward = false;
};

using Pipeline = std::tuple<int32_t, int32_t, int32_t, int64_t>;  // dp, tp, cp, step

std::map<Pipeline, StepWindow> windows(const Facts& facts) {
  std::map<Pipeline, StepWindow> result;
  for (const Rank& rank : facts.timeline.ranks) {
    for (const Microbatch& pass : rank.microbatches) {
      if (!facts.steps.contains(pass.step)) continue;
      StepWindow& window = result[{rank.dp, rank.tp, rank.cp, pass.step}];
      window.start = std::min(window.start, pass.start);
      window.end = std::max(window.end, pass.end);
      window.busy[rank.pp] += pass.end - pass.start;
      if (pass.pass == 'F') window.microbatches.insert(pass.microbatch);
      window.chunks = std::max(window.chunks, pass.chunk + 1);
      window.splits_backward |= pass.pass == 'W';
    }
  }
  return result;
}

// Bytes in flight after both sides were issued, of messages to the next (forward) or the previous stage.
double transfer_ms(const Facts& facts, const metrics::PeerIndex& peers, bool forward) {
  std::vector<double> times;
  for (const Rank& rank : facts.timeline.ranks) {
    for (const timeline::Collective& c : rank.collectives) {
      if (c.op != Op::recv) continue;
      const Rank* sender = facts.timeline.find_rank(c.peer);
      const auto issue = peers.last_other_issue(rank.rank, c);
      if (!sender || !issue || sender->pp == rank.pp || (sender->pp < rank.pp) != forward) continue;
      times.push_back(std::max(0.0, ms(c.end - std::max(issue->time, c.start))));
    }
  }
  return metrics::median(std::move(times));
}

// Host time between two passes of the busiest stage: neither a pass nor any kind of wait.
double between_passes(const Facts& facts, const std::map<Pipeline, StepWindow>& windows, int32_t busiest_stage,
                      int64_t passes) {
  std::vector<double> gaps;
  for (const metrics::RankMetrics& measured : facts.metrics.ranks) {
    if (measured.pp != busiest_stage) continue;
    for (const metrics::StepPartition& p : measured.partitions) {
      const auto window = windows.find({measured.dp, measured.tp, measured.cp, p.step});
      if (window == windows.end()) continue;
      int64_t host_ns = 0;
      for (const metrics::Segment& s : p.segments) {
        if (s.category != Category::host) continue;
        host_ns += std::max<int64_t>(0, std::min(s.end, window->second.end) - std::max(s.start, window->second.start));
      }
      gaps.push_back(ms(host_ns) / static_cast<double>(passes));
    }
  }
  return metrics::median(std::move(gaps));
}

// While the first stage waits for a batch, inside the span.
double late_loader_ms(const Facts& facts, const std::map<Pipeline, StepWindow>& windows) {
  std::vector<double> late;
  for (const Rank& rank : facts.timeline.ranks) {
    if (rank.pp != 0 || rank.batches.empty()) continue;
    std::map<int64_t, double> by_step;
    for (const timeline::Batch& batch : rank.batches) {
      const auto window = windows.find({rank.dp, rank.tp, rank.cp, batch.step});
      if (window == windows.end()) continue;
      const int64_t start = std::max(batch.wait_start, window->second.start);
      const int64_t end = std::min(batch.wait_end, window->second.end);
      by_step[batch.step] += ms(std::max<int64_t>(0, end - start));
    }
    for (const auto& [step, wait] : by_step) late.push_back(wait);
  }
  return metrics::median(std::move(late));
}

}  // namespace

std::optional<PipelineProfile> profile_pipeline(const Facts& facts) {
  const auto pipelines = windows(facts);
  PipelineProfile profile;
  std::vector<double> spans, bubbles, microbatches;
  bool splits_backward = false;
  for (const auto& [key, window] : pipelines) {
    const int64_t stages = static_cast<int64_t>(window.busy.size());
    if (stages < 2 || window.end <= window.start) continue;
    profile.stages = std::max(profile.stages, stages);
    profile.chunks = std::max<int64_t>(profile.chunks, window.chunks);
    splits_backward |= window.splits_backward;
    int64_t busy = 0;
    for (const auto& [stage, ns] : window.busy) busy += ns;
    spans.push_back(ms(window.end - window.start));
    bubbles.push_back(1 - static_cast<double>(busy) / static_cast<double>(stages * (window.end - window.start)));
    microbatches.push_back(static_cast<double>(window.microbatches.size()));
  }
  if (spans.empty()) return std::nullopt;
  profile.microbatches = std::max<int64_t>(1, static_cast<int64_t>(metrics::median(microbatches)));
  if (profile.stages * profile.chunks > kMostPasses / profile.microbatches) return std::nullopt;
  if (profile.chunks > 1 && profile.microbatches % profile.stages != 0) return std::nullopt;  // no schedule has that
  profile.span = metrics::median(spans);
  profile.bubble_fraction = metrics::mean(bubbles);
  profile.bubble_ms = profile.bubble_fraction * profile.span;

  const size_t stages = static_cast<size_t>(profile.stages), kinds = splits_backward ? 3 : 2;
  std::vector<std::vector<double>> times[3], fixed[3];  // [pass_kind][stage]
  for (size_t kind = 0; kind < 3; ++kind) {
    times[kind].resize(stages);
    fixed[kind].resize(stages);
  }
  for (const Rank& rank : facts.timeline.ranks) {
    if (rank.pp < 0 || rank.pp >= profile.stages || rank.microbatches.empty()) continue;
    const size_t stage = static_cast<size_t>(rank.pp);
    ++profile.ranks;
    for (const Microbatch& pass : rank.microbatches) {
      if (facts.steps.contains(pass.step)) times[pass_kind(pass.pass)][stage].push_back(ms(pass.end - pass.start));
    }
    if (const auto known = fixed_times(facts.timeline, rank, facts)) {
      for (size_t kind = 0; kind < kinds; ++kind) fixed[kind][stage].push_back((*known)[kind]);
    }
  }
  profile.fixed_known = true;
  for (const auto& of_stage : fixed[0]) profile.fixed_known &= !of_stage.empty();
  PipelineProfile::Passes* passes[] = {&profile.forward, &profile.backward, &profile.weight_gradient};
  for (size_t kind = 0; kind < kinds; ++kind) {
    for (size_t stage = 0; stage < stages; ++stage) {
      if (times[kind][stage].empty()) return std::nullopt;  // a stage's passes are missing from the trace
      const double time = metrics::median(times[kind][stage]);
      passes[kind]->time.push_back(time);
      passes[kind]->fixed.push_back(profile.fixed_known ? std::min(metrics::median(fixed[kind][stage]), 0.9 * time)
                                                        : kFixedShareGuess * time);
    }
  }

  size_t busiest = 0;
  for (size_t stage = 1; stage < stages; ++stage) {
    if (profile.stage_time(stage) > profile.stage_time(busiest)) busiest = stage;
  }
  const metrics::PeerIndex peers(facts.timeline);
  profile.between_passes = between_passes(facts, pipelines, static_cast<int32_t>(busiest),
                                          static_cast<int64_t>(kinds) * profile.microbatches * profile.chunks);
  profile.transfer_forward = transfer_ms(facts, peers, true);
  profile.transfer_backward = transfer_ms(facts, peers, false);
  profile.late_loader = late_loader_ms(facts, pipelines);
  for (const metrics::RankMetrics& rank : facts.metrics.ranks) {
    std::vector<double> compute;
    for (const auto& p : rank.partitions) compute.push_back(ms(p.ns[Category::compute]));
    profile.own_ms += metrics::median(std::move(compute));
  }
  return profile;
}

}  // namespace taut::detect
