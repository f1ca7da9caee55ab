// duplicate-data: data-parallel ranks that train on the same samples.
//
// Each data-parallel rank must have samples of its own in every microbatch of a step. Equal sample hashes
// (TAUT_BATCH.sampleHash) at different data-parallel coordinates, for the same microbatch of the same step, mean that
// the gradient counts those samples more than once and others not at all: the step costs what it costs and teaches
// less. Ranks of one replica (its pipeline's first and last stage, say) do read the same, and are no finding.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "analyzer/detect/rule.h"

namespace taut::detect {
namespace {

using timeline::Batch;
using timeline::Rank;

constexpr size_t kEvidenceRows = 6;

/// The microbatch that a batch is: its step, and its place among the batches that its rank took in the step.
using Microbatch = std::tuple<int64_t, size_t>;

struct Reading {
  const Rank* rank;
  const Batch* batch;
};

/// Who read what, for each microbatch: hash -> readings, at most one a data-parallel coordinate.
using Readings = std::map<Microbatch, std::map<uint64_t, std::vector<Reading>>>;

Readings collect(const Facts& facts) {
  Readings readings;
  for (const Rank& rank : facts.timeline.ranks) {
    std::map<int64_t, size_t> taken;  // batches of each step so far
    for (const Batch& batch : rank.batches) {
      const Microbatch microbatch(batch.step, taken[batch.step]++);
      if (batch.sample_hash == 0 || !facts.steps.contains(batch.step)) continue;  // 0: the batch never came
      std::vector<Reading>& same = readings[microbatch][batch.sample_hash];
      const bool known = std::any_of(same.begin(), same.end(), [&](const Reading& r) { return r.rank->dp == rank.dp; });
      if (!known) same.push_back({&rank, &batch});
    }
  }
  return readings;
}

std::string list_of(const std::set<int32_t>& numbers) {
  constexpr size_t kMost = 8;
  std::string text;
  size_t listed = 0;
  for (const int32_t number : numbers) {
    if (++listed > kMost) return text + " and " + std::to_string(numbers.size() - kMost) + " more";
    const bool last = listed == numbers.size();
    text += (listed == 1 ? "" : last ? " and " : ", ") + std::to_string(number);
  }
  return text;
}

}  // namespace

std::vector<Finding> detect_duplicate_data(const Facts& facts) {
  const Readings readings = collect(facts);
  Finding finding;
  std::set<int32_t> ranks, replicas;
  std::set<int64_t> steps;
  size_t all = 0, again = 0, microbatches = 0;
  for (const auto& [microbatch, by_hash] : readings) {
    bool duplicated = false;
    for (const auto& [hash, same] : by_hash) {
      all += same.size();
      if (same.size() < 2) continue;
      again += same.size() - 1;
      duplicated = true;
      steps.insert(std::get<0>(microbatch));
      for (const Reading& reading : same) {
        ranks.insert(reading.rank->rank);
        replicas.insert(reading.rank->dp);
        if (finding.evidence.size() >= kEvidenceRows) continue;
        finding.evidence.push_back({timeline::table_name(timeline::Table::batch), reading.batch->rowid,
                                    reading.rank->rank, reading.batch->wait_start, reading.batch->wait_end,
                                    "microbatch " + std::to_string(std::get<1>(microbatch)) + " of step " +
                                        std::to_string(std::get<0>(microbatch)) + ": the samples of rank " +
                                        std::to_string(same.front().rank->rank)});
      }
    }
    microbatches += duplicated;
  }
  if (again == 0) return {};

  const double share = static_cast<double>(again) / static_cast<double>(all);
  const double now_ms = facts.metrics.summary.step_ms;
  finding.severity = Severity::high;  // what is learned is wrong, however little of it
  finding.cost_share = share;
  finding.cost_ms_per_step = share * now_ms;
  finding.ranks.assign(ranks.begin(), ranks.end());
  finding.title = "Data-parallel ranks " + list_of(replicas) + " train on the same samples: " + format_percent(share) +
                  " of all microbatches are another rank's";
  finding.explanation =
      "In " + std::to_string(steps.size()) + (steps.size() == 1 ? " step, " : " steps, ") +
      std::to_string(microbatches) + (microbatches == 1 ? " microbatch has" : " microbatches have") +
      " equal sample hashes on different data-parallel ranks. The gradient counts those samples more than once and is "
      "that of a smaller batch than configured; " +
      format_ms(finding.cost_ms_per_step) + " of each step go into work that another rank does too.";
  Suggestion suggestion;
  suggestion.predicted = predict(now_ms, now_ms, now_ms, now_ms);  // the step takes as long, and is worth more
  suggestion.why =
      "Give every data-parallel rank samples of its own: shard the data set by data-parallel rank (a "
      "distributed sampler), seed the sampler alike on all ranks, and check that each process knows its rank. "
      "A data set with fewer samples than a global batch repeats them too: use more data or a smaller "
      "train_batch_size. No key of the config does this safely.";
  finding.suggestions.push_back(std::move(suggestion));
  return {std::move(finding)};
}

}  // namespace taut::detect
