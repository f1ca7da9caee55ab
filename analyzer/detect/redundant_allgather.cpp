// redundant-allgather: gathers that need not have happened.
//
// Two causes, judged by content identity (tensorId, tensorVersion), never by name:
//   sliced:   every member of the group used no more than its own shard of the gathered tensor (TAUT_TENSOR_USE);
//   repeated: a rank gathered a content that it had gathered before, with no write in between (same version).
// What a gather costs is the time the trainer blocked on it after its last peer had issued it: bytes in flight. Time
// spent waiting for that peer comes back only in part, since the next collective waits for the same peer.
#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "analyzer/detect/rule.h"
#include "analyzer/metrics/peers.h"
#include "analyzer/metrics/series.h"
#include "runtime/config/layout.h"

namespace taut::detect {
namespace {

using timeline::Collective;
using timeline::Op;
using timeline::Rank;

constexpr double kLeastCostShare = 0.002;
constexpr size_t kEvidenceRows = 6;

using Content = std::tuple<int64_t, int64_t>;                // tensor id, version
using GroupContent = std::tuple<int64_t, int64_t, int64_t>;  // group, tensor id, version

enum class Cause { sliced, repeated };

// One needless gather on one rank.
struct Gather {
  const Rank* rank;
  const Collective* collective;
  double transfer_ms, peer_wait_ms, assembly_ms;
};

// From the end of a blocking gather to the mark of its first use; 0 when another collective comes in between.
double assembly_ms(const Rank& rank, const Collective& gather) {
  if (gather.wait_end <= gather.wait_start) return 0;
  const auto use = std::partition_point(rank.tensor_uses.begin(), rank.tensor_uses.end(),
                                        [&](const timeline::TensorUse& u) { return u.time < gather.wait_end; });
  const bool is_its_use = use != rank.tensor_uses.end() && use->tensor_id == gather.tensor_id &&
                          use->tensor_version == gather.tensor_version;
  if (!is_its_use) return 0;
  const auto next = std::partition_point(rank.collectives.begin(), rank.collectives.end(),
                                         [&](const Collective& c) { return c.start < gather.wait_end; });
  if (next != rank.collectives.end() && next->start < use->time) return 0;
  return static_cast<double>(use->time - gather.wait_end) * 1e-6;
}

// Contents that `rank` used, and whether it ever used more than its shard (1/groupSize) of them.
std::map<Content, bool> used_beyond_shard(const Rank& rank, const std::map<Content, int32_t>& group_sizes) {
  std::map<Content, bool> beyond;
  for (const timeline::TensorUse& use : rank.tensor_uses) {
    const Content content(use.tensor_id, use.tensor_version);
    const auto size = group_sizes.find(content);
    if (size == group_sizes.end() || size->second < 1) continue;
    const int64_t shard = (use.bytes_total + size->second - 1) / size->second;
    beyond[content] |= use.bytes_used > shard;
  }
  return beyond;
}

// Contents whose gathering nobody needed: each gathering rank in the trace marked its use, and none went beyond its
// shard.
std::set<GroupContent> only_sliced(const timeline::Timeline& timeline) {
  std::set<GroupContent> gathered, needed;
  for (const Rank& rank : timeline.ranks) {
    std::map<Content, int32_t> group_sizes;
    for (const Collective& c : rank.collectives) {
      if (c.op == Op::all_gather && c.tensor_id != 0) group_sizes[{c.tensor_id, c.tensor_version}] = c.group_size;
    }
    const auto beyond = used_beyond_shard(rank, group_sizes);
    for (const Collective& c : rank.collectives) {
      if (c.op != Op::all_gather || c.tensor_id == 0) continue;
      const GroupContent content(c.group_id, c.tensor_id, c.tensor_version);
      const auto use = beyond.find({c.tensor_id, c.tensor_version});
      gathered.insert(content);
      if (use == beyond.end() || use->second) needed.insert(content);
    }
  }
  std::set<GroupContent> sliced;
  std::set_difference(gathered.begin(), gathered.end(), needed.begin(), needed.end(),
                      std::inserter(sliced, sliced.end()));
  return sliced;
}

std::map<Cause, std::vector<Gather>> needless_gathers(const timeline::Timeline& timeline) {
  const std::set<GroupContent> sliced = only_sliced(timeline);
  const metrics::PeerIndex peers(timeline);
  std::map<Cause, std::vector<Gather>> needless;
  for (const Rank& rank : timeline.ranks) {
    std::set<GroupContent> seen;
    for (const Collective& c : rank.collectives) {
      if (c.op != Op::all_gather || c.tensor_id == 0) continue;
      const GroupContent content(c.group_id, c.tensor_id, c.tensor_version);
      const bool again = !seen.insert(content).second;
      if (!again && !sliced.contains(content)) continue;
      const auto peer_wait = peers.wait_for_peer(rank.rank, c);
      const double peer_wait_ms = peer_wait ? static_cast<double>(peer_wait->end - peer_wait->start) * 1e-6 : 0;
      const double wait_ms = static_cast<double>(c.wait_end - c.wait_start) * 1e-6;
      // A gathered output that is only sliced is the root; gathering it again is the same waste.
      const Cause cause = sliced.contains(content) ? Cause::sliced : Cause::repeated;
      needless[cause].push_back({&rank, &c, wait_ms - peer_wait_ms, peer_wait_ms, assembly_ms(rank, c)});
    }
  }
  return needless;
}

// Mean over ranks of the median over analysed steps, of gathers issued within the step.
template <class Value>
double per_step(const Facts& facts, const std::vector<Gather>& gathers, Value value) {
  std::vector<double> ranks;
  for (const metrics::RankMetrics& rank : facts.metrics.ranks) {
    if (rank.steps == 0) continue;
    std::vector<double> steps(rank.partitions.size(), 0.0);
    for (const Gather& gather : gathers) {
      if (gather.rank->rank != rank.rank) continue;
      const auto step = std::partition_point(rank.partitions.begin(), rank.partitions.end(),
                                             [&](const auto& p) { return p.end <= gather.collective->start; });
      if (step == rank.partitions.end() || step->start > gather.collective->start) continue;
      steps[static_cast<size_t>(step - rank.partitions.begin())] += value(gather);
    }
    ranks.push_back(metrics::median(std::move(steps)));
  }
  return metrics::mean(ranks);
}

bool in_analysed_step(const Facts& facts, const Gather& gather) {
  for (const timeline::Step& step : gather.rank->steps) {
    if (gather.collective->start >= step.start && gather.collective->start < step.end) {
      return facts.steps.contains(step.step);
    }
  }
  return false;
}

std::vector<Evidence> pick_evidence(const Facts& facts, std::vector<Gather> gathers, Cause cause) {
  std::erase_if(gathers, [&](const Gather& g) { return !in_analysed_step(facts, g); });
  const size_t rows = std::min(gathers.size(), kEvidenceRows);
  std::partial_sort(gathers.begin(), gathers.begin() + static_cast<std::ptrdiff_t>(rows), gathers.end(),
                    [](const Gather& a, const Gather& b) { return a.transfer_ms > b.transfer_ms; });
  std::vector<Evidence> evidence;
  for (size_t i = 0; i < rows; ++i) {
    const Collective& c = *gathers[i].collective;
    const std::string size = std::to_string(c.bytes) + " bytes over " + std::to_string(c.group_size) + " ranks, ";
    evidence.push_back({timeline::table_name(timeline::Table::collective), c.rowid, gathers[i].rank->rank, c.start,
                        c.end,
                        size + (cause == Cause::sliced ? "of which each rank used its own shard only"
                                                       : "gathered before and not written since")});
  }
  return evidence;
}

// What it takes off a step, in the middle and at either end.
struct Saving {
  double ms, low_ms, high_ms;
};

Prediction predict(double now_ms, const Saving& saving, double share) {
  return detect::predict(now_ms, now_ms - share * saving.ms, now_ms - share * saving.high_ms,
                         now_ms - share * saving.low_ms);
}

// "Takes 12.4 MiB more on the fullest rank (80.1 instead of 67.7 MiB)." by the memory model.
std::string memory_risk(const config::Config& before, const config::Config& after) {
  const auto mib = [](const config::Config& c) {
    return config::layout_json(c)["memory_bytes_of_fullest_rank"].get<double>() / (1 << 20);
  };
  const double was = mib(before), becomes = mib(after);
  char text[128];
  std::snprintf(text, sizeof text, "Takes %.1f MiB more on the fullest rank (%.1f instead of %.1f MiB).", becomes - was,
                becomes, was);
  return text;
}

// A unit's weights under ZeRO 3 are gathered twice a microbatch, m microbatches a step: kept until backward, m of the
// 2m - 1 repeats go.
Suggestion keep_weights(const config::Config& config, double now_ms, const Saving& saving) {
  const auto microbatches = static_cast<double>(config.gradient_accumulation_steps);
  config::Config kept = config;
  kept.zero_optimization.reshard_after_forward = false;
  Suggestion suggestion;
  suggestion.patch = {{"zero_optimization", {{"reshard_after_forward", false}}}};
  suggestion.why =
      "ZeRO 3 frees the gathered weights after forward and gathers them again for backward. Kept in between, they are "
      "gathered once a microbatch; the results are the same.";
  suggestion.risk = memory_risk(config, kept);
  suggestion.predicted = predict(now_ms, saving, microbatches / (2 * microbatches - 1));
  return suggestion;
}

Suggestion suggest(const Facts& facts, Cause cause, double now_ms, const Saving& saving) {
  if (cause == Cause::repeated && facts.config && facts.config->zero_optimization.stage == 3 &&
      facts.config->zero_optimization.reshard_after_forward) {
    return keep_weights(*facts.config, now_ms, saving);
  }
  Suggestion suggestion;
  suggestion.predicted = predict(now_ms, saving, 1);
  if (cause == Cause::sliced && (!facts.config || facts.config->parallel.gather_output)) {
    suggestion.patch = {{"parallel", {{"gather_output", false}}}};
    suggestion.why =
        "Without gather_output each layer hands its shard on to the next one, which wants just that; the "
        "results are the same.";
  } else if (cause == Cause::sliced) {
    suggestion.why = "Pass the shard on instead of the gathered tensor. No key of the config does this.";
  } else {
    suggestion.why = "Keep the gathered tensor until its content changes. No key of the config does this.";
  }
  return suggestion;
}

}  // namespace

std::vector<Finding> detect_redundant_allgather(const Facts& facts) {
  std::vector<Finding> findings;
  const double now_ms = facts.metrics.summary.step_ms;
  if (now_ms <= 0) return findings;
  for (const auto& [cause, gathers] : needless_gathers(facts.timeline)) {
    const double count = per_step(facts, gathers, [](const Gather&) { return 1.0; });
    const double transfer_ms = per_step(facts, gathers, [](const Gather& g) { return g.transfer_ms; });
    const double peer_wait_ms = per_step(facts, gathers, [](const Gather& g) { return g.peer_wait_ms; });
    const double assembly_ms = per_step(facts, gathers, [](const Gather& g) { return g.assembly_ms; });
    const double bytes =
        per_step(facts, gathers, [](const Gather& g) { return static_cast<double>(g.collective->bytes); });
    const double cost_ms = std::min(transfer_ms + assembly_ms + 0.5 * peer_wait_ms, now_ms);
    if (cost_ms < kLeastCostShare * now_ms) continue;

    Finding finding;
    finding.cost_ms_per_step = cost_ms;
    finding.cost_share = cost_ms / now_ms;
    finding.title = cause == Cause::sliced
                        ? "Gathered tensors are only sliced: " + std::to_string(static_cast<int64_t>(count)) +
                              " needless all-gathers a step cost " + format_ms(cost_ms)
                        : "The same content is gathered again: " + std::to_string(static_cast<int64_t>(count)) +
                              " repeated all-gathers a step cost " + format_ms(cost_ms);
    finding.explanation =
        "Each step moves " + std::to_string(static_cast<int64_t>(bytes / 1024)) + " KiB a rank through all-gathers " +
        (cause == Cause::sliced ? "of which every member then uses no more than the shard it had before."
                                : "whose content (tensor and version) the rank had already gathered.") +
        " The trainers block on them for " + format_ms(transfer_ms + peer_wait_ms) + " a step, " +
        format_ms(transfer_ms) + " of it with bytes in flight; putting the shards together takes another " +
        format_ms(assembly_ms) + ".";
    std::set<int32_t> ranks;
    for (const Gather& gather : gathers) ranks.insert(gather.rank->rank);
    finding.ranks.assign(ranks.begin(), ranks.end());
    finding.evidence = pick_evidence(facts, gathers, cause);
    const Saving saving{cost_ms, 0.8 * transfer_ms, 1.25 * (transfer_ms + assembly_ms + peer_wait_ms)};
    finding.suggestions.push_back(suggest(facts, cause, now_ms, saving));
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace taut::detect
