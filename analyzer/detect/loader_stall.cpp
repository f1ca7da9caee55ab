// loader-stall: the trainers wait for batches.
//
// The trace shows what a batch costs its worker in each phase and what the trainers do between requests; replaying both
// with other settings (simulate/loader_queue.h) tells which setting would end the stall. The processor's share of the
// work is bounded by the host's cores, waiting for storage is not.
#include <algorithm>
#include <cstdio>

#include "analyzer/detect/loader_profile.h"
#include "analyzer/detect/rule.h"

namespace taut::detect {
namespace {

constexpr double kLeastStallShare = 0.01;   // below, nobody would notice the cure
constexpr double kStallThatIsFine = 0.015;  // what is left after the cure
constexpr int64_t kMostWorkers = 64;
constexpr double kSignificantPhase = 0.1;  // share of the service from which on a phase is worth removing
constexpr double kFullestQueue = 0.97;     // above this load a deeper queue only delays the stall
constexpr size_t kEvidenceWaits = 5, kEvidenceWork = 3;

struct Outcome {
  simulate::LoaderSettings settings;
  double step_ms = 0, step_ms_median = 0, stall_ms = 0;
  bool cpu_bound = false;
};

// Replays the run with other settings; `removed_ms` is taken off every batch's service.
Outcome replay(const LoaderProfile& profile, const Facts& facts, simulate::LoaderSettings settings,
               double removed_ms = 0) {
  auto trainers = profile.trainers;
  const double total = std::max(profile.phases.total(), 1e-9);
  for (auto& trainer : trainers) {
    for (double& service : trainer.service_ms) service *= std::max(0.0, 1 - removed_ms / total);
  }
  const auto result = simulate::replay_loader(trainers, settings);
  Outcome outcome{settings, result.step_ms, result.step_ms_median, result.stall_ms};
  // Workers and trainers share the host's cores: with all of them busy no setting makes the step shorter.
  if (facts.timeline.cpu_cores > 0) {
    const double loading_ranks = static_cast<double>(profile.ranks.size());
    const double cpu_ms =
        profile.trainers_cpu_ms_per_step + profile.cpu_ms_per_batch * profile.requests_per_step * loading_ranks;
    // Never above the measured step: trainers that share cores look busier than they are.
    const double floor_ms = std::min(cpu_ms / static_cast<double>(facts.timeline.cpu_cores), profile.step_ms);
    if (settings.workers > 0 && floor_ms > outcome.step_ms) {
      outcome.step_ms = floor_ms;
      outcome.step_ms_median = std::max(outcome.step_ms_median, floor_ms);
      outcome.cpu_bound = true;
    }
  }
  return outcome;
}

// The smallest number of workers, and then the shallowest queue, that ends the stall; where none does, the first that
// comes within 1 % of the best.
Outcome fewest_workers(const LoaderProfile& profile, const Facts& facts, int64_t prefetch, double removed_ms) {
  std::vector<Outcome> tried;
  int without_gain = 0;
  for (int64_t workers = std::max<int64_t>(1, profile.workers); workers <= kMostWorkers && without_gain < 4;
       ++workers) {
    for (const int64_t depth : {prefetch, 2 * prefetch, 4 * prefetch}) {
      const Outcome outcome = replay(profile, facts, {workers, depth}, removed_ms);
      const double service = std::max(0.0, profile.phases.total() - removed_ms);
      const double load = service * profile.requests_per_step / (static_cast<double>(workers) * outcome.step_ms);
      if (depth > prefetch && load > kFullestQueue) break;
      if (outcome.stall_ms < kStallThatIsFine * outcome.step_ms && !outcome.cpu_bound) return outcome;
      if (depth == prefetch) {
        without_gain = tried.empty() || outcome.step_ms < 0.995 * tried.back().step_ms ? 0 : without_gain + 1;
        tried.push_back(outcome);
      }
    }
  }
  if (tried.empty()) return replay(profile, facts, {profile.workers, prefetch}, removed_ms);
  const double best = std::min_element(tried.begin(), tried.end(), [](const Outcome& a, const Outcome& b) {
                        return a.step_ms < b.step_ms;
                      })->step_ms;
  return *std::find_if(tried.begin(), tried.end(), [&](const Outcome& o) { return o.step_ms <= 1.01 * best; });
}

// The step time is a median, as measured steps are judged; the gain is one of means, since stalls may be rare but long.
// Of what the replay of the run as it was leaves unexplained, half is expected to stay.
Prediction predict_step(const LoaderProfile& profile, const Outcome& cure, double unexplained_ms) {
  Prediction predicted = predict(profile.step_ms, cure.step_ms_median + 0.5 * unexplained_ms, 0.9 * cure.step_ms_median,
                                 1.15 * (std::max(cure.step_ms_median, cure.step_ms) + unexplained_ms));
  predicted.speedup = profile.step_ms / (cure.step_ms + 0.5 * unexplained_ms);
  return predicted;
}

struct Diagnosis {
  std::string cause;   // why the loader cannot keep up, as a clause
  std::string remedy;  // what the patch does about it
};

Diagnosis diagnose(const LoaderProfile& profile, const Outcome& cure) {
  const ServicePhases& phases = profile.phases;
  const double interval = profile.step_ms / std::max(1.0, profile.requests_per_step);
  std::string slow = "preparing a batch";
  if (profile.phases_known) {
    const double cpu = phases.tokenize + phases.pack;
    if (phases.read >= cpu && phases.read >= phases.hand_over) {
      slow = "reading (storage latency), " + format_ms(phases.read) + " of the " + format_ms(phases.total()) +
             " a batch takes,";
    } else if (cpu >= phases.hand_over) {
      slow = "tokenizing and packing, " + format_ms(cpu) + " of the " + format_ms(phases.total()) + " a batch takes,";
    } else {
      slow =
          "handing over, " + format_ms(phases.hand_over) + " of the " + format_ms(phases.total()) + " a batch takes,";
    }
  }
  if (profile.workers == 0) {
    return {"the trainer prepares its batches itself (num_workers 0); " + slow + " is done while it could train",
            "workers prepare batches while the trainer trains"};
  }
  const bool rate_suffices =
      profile.phases_known && phases.total() / static_cast<double>(profile.workers) < 0.95 * interval;
  if (rate_suffices && cure.settings.workers == profile.workers) {
    return {
        "on average the workers keep up, but single batches take much longer than others and the queue is too shallow "
        "to hide them",
        "a deeper queue evens the slow batches out"};
  }
  return {"too few workers: " + slow + " takes longer than " + std::to_string(profile.workers) +
              (profile.workers == 1 ? " worker" : " workers") + " can hide",
          "more workers work on different batches at the same time"};
}

Suggestion worker_suggestion(const LoaderProfile& profile, const Facts& facts, const Outcome& cure, bool shared_memory,
                             const Diagnosis& diagnosis, double unexplained_ms) {
  Suggestion s;
  s.patch["data"] = nlohmann::ordered_json::object();
  if (cure.settings.workers != profile.workers) s.patch["data"]["num_workers"] = cure.settings.workers;
  const int64_t prefetch = facts.config ? facts.config->data.prefetch_factor : 2;
  if (cure.settings.prefetch != prefetch) s.patch["data"]["prefetch_factor"] = cure.settings.prefetch;
  if (shared_memory) s.patch["data"]["shared_memory"] = true;
  const double left = cure.stall_ms / std::max(cure.step_ms, 1e-9);
  s.why = "With " + std::to_string(cure.settings.workers) + " workers a rank and " +
          std::to_string(cure.settings.prefetch) + " batches ahead each, " + diagnosis.remedy +
          "; replaying this run's service times leaves a stall of " + format_percent(left) + " of the step." +
          (shared_memory ? " Batches are handed over in shared memory instead of through a pipe." : "") +
          (cure.cpu_bound ? " The host's " + std::to_string(facts.timeline.cpu_cores) +
                                " cores are then busy, so more workers would not help."
                          : "");
  s.predicted = predict_step(profile, cure, unexplained_ms);
  return s;
}

std::vector<Evidence> pick_evidence(const LoaderProfile& profile, const Facts& facts) {
  struct Wait {
    int32_t rank;
    const timeline::Batch* batch;
  };
  struct Work {
    int32_t rank;
    const timeline::LoaderWork* work;
  };
  std::vector<Wait> waits;
  std::vector<Work> works;
  for (int32_t number : profile.ranks) {
    const timeline::Rank& rank = *facts.timeline.find_rank(number);
    for (const auto& batch : rank.batches) {
      if (facts.steps.contains(batch.step)) waits.push_back({number, &batch});
    }
    for (const auto& work : rank.loader_work) {
      if (work.phase != timeline::LoaderPhase::blocked) works.push_back({number, &work});
    }
  }
  const size_t wait_rows = std::min(waits.size(), kEvidenceWaits), work_rows = std::min(works.size(), kEvidenceWork);
  std::partial_sort(waits.begin(), waits.begin() + static_cast<std::ptrdiff_t>(wait_rows), waits.end(),
                    [](const Wait& a, const Wait& b) {
                      return a.batch->wait_end - a.batch->wait_start > b.batch->wait_end - b.batch->wait_start;
                    });
  std::partial_sort(
      works.begin(), works.begin() + static_cast<std::ptrdiff_t>(work_rows), works.end(),
      [](const Work& a, const Work& b) { return a.work->end - a.work->start > b.work->end - b.work->start; });
  std::vector<Evidence> evidence;
  for (size_t i = 0; i < wait_rows; ++i) {
    const timeline::Batch& b = *waits[i].batch;
    evidence.push_back({timeline::table_name(timeline::Table::batch), b.rowid, waits[i].rank, b.wait_start, b.wait_end,
                        "step " + std::to_string(b.step) + ": waited for a batch, " + std::to_string(b.queue_depth) +
                            " ready when asked"});
  }
  for (size_t i = 0; i < work_rows; ++i) {
    const timeline::LoaderWork& w = *works[i].work;
    evidence.push_back({timeline::table_name(timeline::Table::loader_work), w.rowid, works[i].rank, w.start, w.end,
                        "batch " + std::to_string(w.batch) + ": " + timeline::phase_name(w.phase) +
                            (w.worker < 0 ? " in the trainer" : " by worker " + std::to_string(w.worker))});
  }
  return evidence;
}

std::string explain(const LoaderProfile& profile, const Diagnosis& diagnosis) {
  std::string text = "A rank waits " + format_ms(profile.stall_ms) + " of its " + format_ms(profile.step_ms) +
                     " step for batches: " + diagnosis.cause + ".";
  if (profile.phases_known) {
    text += " A batch costs its worker " + format_ms(profile.phases.read) + " to read, " +
            format_ms(profile.phases.tokenize) + " to tokenize, " + format_ms(profile.phases.pack) + " to pack and " +
            format_ms(profile.phases.hand_over) + " to hand over;";
  }
  char depth[32];
  std::snprintf(depth, sizeof depth, "%.1f", profile.queue_depth);
  text += std::string(" on average ") + depth + " batches were ready when one was asked for.";
  return text;
}

}  // namespace

std::vector<Finding> detect_loader_stall(const Facts& facts) {
  const auto profile = profile_loader(facts);
  if (!profile || profile->step_ms <= 0 || profile->stall_ms < kLeastStallShare * profile->step_ms) return {};

  const int64_t prefetch = facts.config ? std::max<int64_t>(1, facts.config->data.prefetch_factor) : 2;
  const double service = profile->phases.total();
  const bool slow_pipe = facts.config && !facts.config->data.shared_memory && profile->workers > 0 &&
                         profile->phases.hand_over > kSignificantPhase * service;
  const Outcome current = replay(*profile, facts, {profile->workers, prefetch});
  // What the replay of the run as it was does not account for may stay after the cure.
  const double unexplained_ms = std::max(0.0, profile->step_ms - current.step_ms);
  const Outcome cure = fewest_workers(*profile, facts, prefetch, slow_pipe ? profile->phases.hand_over : 0);
  const Diagnosis diagnosis = diagnose(*profile, cure);

  Finding finding;
  const bool changes = cure.settings.workers != profile->workers || cure.settings.prefetch != prefetch || slow_pipe;
  if (changes && cure.step_ms < 0.995 * profile->step_ms) {
    finding.suggestions.push_back(worker_suggestion(*profile, facts, cure, slow_pipe, diagnosis, unexplained_ms));
  }
  const bool slow_reads = profile->phases_known && profile->phases.read > 0.5 * service;
  if (slow_reads && facts.config && !facts.config->data.preload && !facts.config->data.mock) {
    const int64_t workers = std::max<int64_t>(profile->workers, 1);
    const Outcome preloaded = replay(*profile, facts, {workers, prefetch}, profile->phases.read);
    Suggestion s;
    s.patch["data"]["preload"] = true;
    if (workers != profile->workers) s.patch["data"]["num_workers"] = workers;
    s.why = "Reading takes " + format_percent(profile->phases.read / service) +
            " of a batch's preparation; from memory it takes nothing.";
    s.risk = "Needs the whole corpus in the memory of each node, and time to read it before the first step.";
    s.predicted = predict_step(*profile, preloaded, unexplained_ms);
    if (preloaded.step_ms < 0.995 * profile->step_ms) finding.suggestions.push_back(std::move(s));
  }
  // Best first, but more workers cost less than memory for the corpus: preloading has to be clearly better.
  if (finding.suggestions.size() == 2 &&
      finding.suggestions[1].predicted.step_ms < 0.95 * finding.suggestions[0].predicted.step_ms) {
    std::swap(finding.suggestions[0], finding.suggestions[1]);
  }
  if (!finding.suggestions.empty()) {
    const double speedup = std::max(1.0, finding.suggestions[0].predicted.speedup);
    finding.cost_ms_per_step = profile->step_ms * (1 - 1 / speedup);
  }
  finding.cost_share = finding.cost_ms_per_step / profile->step_ms;
  finding.title = "The trainers wait " + format_percent(profile->stall_ms / profile->step_ms) +
                  " of each step for their data loaders";
  finding.explanation = explain(*profile, diagnosis);
  if (finding.suggestions.empty()) {
    finding.explanation += cure.cpu_bound ? " No setting of the loader would end this: the host's cores are all busy."
                                          : " No setting of the loader would end this.";
  }
  finding.ranks = profile->ranks;
  finding.evidence = pick_evidence(*profile, facts);
  return {std::move(finding)};
}

}  // namespace taut::detect
