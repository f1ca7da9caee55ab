// pipeline-bubble: stages wait for each other.
//
// The measured pass times of every stage are replayed (simulate/pipeline.h) as they were, and with one cause of the
// bubble removed at a time: that gives the blame. Replayed with other microbatch sizes and layer splits they give the
// cures. A pass takes a + b × microbatch size: a, the cost of starting operations and of touching the parameters,
// limits how small microbatches may usefully get.
#include <algorithm>
#include <optional>

#include "analyzer/detect/pipeline_profile.h"
#include "analyzer/detect/rule.h"
#include "analyzer/metrics/series.h"
#include "analyzer/simulate/pipeline.h"
#include "runtime/config/model_math.h"
#include "runtime/config/pipeline_math.h"

namespace taut::detect {
namespace {

constexpr double kLeastGainShare = 0.01;
constexpr double kNotableBubble = 0.10;      // worth a remark even if no setting of the config shrinks it
constexpr double kWorthCombining = 0.98;     // two changes at once have to be this much better than one
constexpr int64_t kMostMicrobatches = 1024;  // per step; nobody runs more
constexpr size_t kEvidenceRows = 6;

using simulate::PipelineCosts;

// A setting to try: the microbatch is `divisor` times smaller, the layers are split as `layers` (empty: as now).
struct Setting {
  int64_t divisor = 1;
  std::vector<int64_t> layers;
};

// What the passes show, and the config where they cannot: gpipe and 1f1b run the same ones.
config::PipelineSchedule schedule_of(const Facts& facts, const PipelineProfile& profile) {
  if (profile.chunks > 1) return config::PipelineSchedule::interleaved_1f1b;
  if (!profile.weight_gradient.time.empty()) return config::PipelineSchedule::zero_bubble;
  return facts.config && facts.config->parallel.pipeline_schedule == config::PipelineSchedule::gpipe
             ? config::PipelineSchedule::gpipe
             : config::PipelineSchedule::one_f_one_b;
}

double ideal_bubble(const Facts& facts, const PipelineProfile& profile, int64_t microbatches) {
  return config::ideal_bubble_fraction(schedule_of(facts, profile), profile.stages, microbatches, profile.chunks);
}

// The formula behind ideal_bubble.
const char* ideal_formula(const Facts& facts, const PipelineProfile& profile) {
  switch (schedule_of(facts, profile)) {
    case config::PipelineSchedule::interleaved_1f1b:
      return "(p-1)/(v·m+p-1)";
    case config::PipelineSchedule::zero_bubble:
      return profile.microbatches >= profile.stages ? "(p-1)/(3m+p-1)" : "(2p-m-1)/(2m+2p-1)";
    default:
      return "(p-1)/(m+p-1)";
  }
}

std::vector<int64_t> layers_now(const Facts& facts, const PipelineProfile& profile) {
  if (!facts.config) return {};
  auto layers = config::layers_per_stage(*facts.config);
  if (static_cast<int64_t>(layers.size()) != profile.stages) return {};
  return layers;
}

// What one layer takes of a stage's passes. The first stage's embedding and the last one's head are not layers, so that
// a stage in the middle tells best, else the first.
double layer_share(const std::vector<int64_t>& layers) {
  const size_t stage = layers.size() > 2 ? 1 : 0;
  return layers[stage] > 0 ? 1.0 / static_cast<double>(layers[stage]) : 0;
}

PipelineCosts costs_of(const Facts& facts, const PipelineProfile& profile, const Setting& setting,
                       double fixed_factor) {
  PipelineCosts costs;
  costs.schedule = schedule_of(facts, profile);
  costs.chunks = profile.chunks;
  costs.microbatches = profile.microbatches * setting.divisor;
  const std::vector<int64_t> before = layers_now(facts, profile);
  const size_t reference = before.size() > 2 ? 1 : 0;
  const double shrink = 1.0 / static_cast<double>(setting.divisor);
  const auto add = [&](const PipelineProfile::Passes& passes, std::vector<double>& times) {
    for (size_t s = 0; s < passes.time.size(); ++s) {
      double time = passes.time[s], fixed = fixed_factor * passes.fixed[s];
      if (!setting.layers.empty()) {
        const double moved = static_cast<double>(setting.layers[s] - before[s]) * layer_share(before);
        time = std::max(0.0, time + moved * passes.time[reference]);
        fixed = std::max(0.0, fixed + moved * fixed_factor * passes.fixed[reference]);
      }
      fixed = std::min(fixed, time);
      times.push_back(fixed + (time - fixed) * shrink + profile.between_passes);
    }
  };
  add(profile.forward, costs.forward);
  add(profile.backward, costs.backward);
  add(profile.weight_gradient, costs.weight_gradient);
  // Of a transfer the latency stays when the message shrinks; where nobody says how much that is, half.
  const double latency_ms = facts.config ? facts.config->communication.emulated_link.latency_us * 1e-3 : 0;
  const auto transfer = [&](double time) {
    const double latency = latency_ms > 0 ? std::min(time, latency_ms) : 0.5 * time;
    return latency + (time - latency) * shrink;
  };
  costs.transfer_forward = transfer(profile.transfer_forward);
  costs.transfer_backward = transfer(profile.transfer_backward);
  return costs;
}

// Predicts steps by the ratio of replays, so that what the replay leaves out (a late loader, noise) stays as it was.
class Predictor {
 public:
  Predictor(const Facts& facts, const PipelineProfile& profile)
      : facts_(facts),
        profile_(profile),
        now_ms_(facts.metrics.summary.step_ms),
        span_as_it_was_(simulate::replay_pipeline(costs_of(facts, profile, {}, 1)).span()) {}

  double step_ms(const Setting& setting, double fixed_factor = 1) const {
    const double span = simulate::replay_pipeline(costs_of(facts_, profile_, setting, fixed_factor)).span();
    double predicted = profile_.span * span / span_as_it_was_;
    // With more ranks than cores a bubble is no idle time: another rank computes meanwhile.
    if (facts_.timeline.cpu_cores > 0 && facts_.timeline.cpu_cores < profile_.ranks) {
      const double floor_ms = profile_.own_ms / static_cast<double>(facts_.timeline.cpu_cores);
      predicted = std::max(predicted, std::min(profile_.span, floor_ms));
    }
    return now_ms_ - profile_.span + predicted;
  }

  Prediction predict_step(const Setting& setting) const {
    const double step = step_ms(setting);
    return predict(now_ms_, step, 0.95 * step_ms(setting, profile_.fixed_known ? 0.5 : 0),
                   1.05 * step_ms(setting, profile_.fixed_known ? 2 : 4));
  }

  double now_ms() const { return now_ms_; }

 private:
  const Facts& facts_;
  const PipelineProfile& profile_;
  double now_ms_, span_as_it_was_;
};

// The best divisor of the micro batch size for a layer split; of those within 1 % the one with the fewest microbatches.
Setting best_divisor(const Facts& facts, const PipelineProfile& profile, const Predictor& predictor,
                     const std::vector<int64_t>& layers) {
  const int64_t size = facts.config ? facts.config->train_micro_batch_size_per_gpu : 1;
  std::vector<Setting> tried;
  for (int64_t divisor = 1; divisor <= size; ++divisor) {
    if (divisor > 1 && profile.microbatches * divisor > kMostMicrobatches) break;
    if (size % divisor == 0) tried.push_back({divisor, layers});
  }
  double best = predictor.step_ms(tried[0]);
  for (const Setting& setting : tried) best = std::min(best, predictor.step_ms(setting));
  return *std::find_if(tried.begin(), tried.end(),
                       [&](const Setting& s) { return predictor.step_ms(s) <= 1.01 * best; });
}

// Moves single layers from the slowest stage to the one that gains most, while that helps.
std::vector<int64_t> best_split(const Facts& facts, const PipelineProfile& profile, const Predictor& predictor) {
  const std::vector<int64_t> before = layers_now(facts, profile);
  if (before.empty() || profile.chunks > 1) return {};  // pipeline_layers splits whole stages
  std::vector<int64_t> best = before;
  double best_ms = predictor.step_ms({1, best});
  for (bool improved = true; improved;) {
    improved = false;
    std::vector<int64_t> from_here = best;
    for (size_t from = 0; from < best.size(); ++from) {
      for (size_t to = 0; to < best.size(); ++to) {
        if (from == to || from_here[from] <= 1) continue;
        std::vector<int64_t> candidate = from_here;
        --candidate[from];
        ++candidate[to];
        const double candidate_ms = predictor.step_ms({1, candidate});
        if (candidate_ms < 0.995 * best_ms) {
          best = candidate;
          best_ms = candidate_ms;
          improved = true;
        }
      }
    }
  }
  return best == before ? std::vector<int64_t>() : best;
}

// Milliseconds of the span that each cause explains.
struct Blame {
  double few_microbatches, imbalance, transfer, late_loader, rest;
};
Blame assign_blame(const Facts& facts, const PipelineProfile& profile) {
  const PipelineCosts costs = costs_of(facts, profile, {}, 1);
  const auto span = [](const PipelineCosts& c) { return simulate::replay_pipeline(c).span(); };
  PipelineCosts free_transfers = costs;
  free_transfers.transfer_forward = free_transfers.transfer_backward = 0;
  PipelineCosts even = free_transfers;
  for (std::vector<double>* times : {&even.forward, &even.backward, &even.weight_gradient}) {
    times->assign(times->size(), metrics::mean(*times));
  }
  const auto even_replay = simulate::replay_pipeline(even);
  const double as_was = span(costs), no_transfer = span(free_transfers), even_span = even_replay.span();
  Blame blame{};
  blame.transfer = std::max(0.0, as_was - no_transfer);
  blame.imbalance = std::max(0.0, no_transfer - even_span);
  blame.few_microbatches = even_span * even_replay.bubble_fraction;
  blame.late_loader = profile.late_loader;
  blame.rest =
      std::max(0.0, profile.bubble_ms - blame.transfer - blame.imbalance - blame.few_microbatches - blame.late_loader);
  return blame;
}

std::string main_cause(const Blame& blame, const PipelineProfile& profile) {
  struct Cause {
    double ms;
    std::string text;
  };
  const std::string count = std::to_string(profile.microbatches);
  const Cause causes[] = {{blame.few_microbatches,
                           "too few microbatches (" + count + " for " + std::to_string(profile.stages) + " stages)"},
                          {blame.imbalance, "stages of unequal length"},
                          {blame.transfer, "transfers between stages"},
                          {blame.late_loader, "a late data loader"},
                          {blame.rest, "the schedule's passes not following each other closely"}};
  return std::max_element(std::begin(causes), std::end(causes),
                          [](const Cause& a, const Cause& b) { return a.ms < b.ms; })
      ->text;
}

std::string explain(const Facts& facts, const PipelineProfile& profile, const Blame& blame) {
  const double ideal = ideal_bubble(facts, profile, profile.microbatches);
  std::string text =
      "Between the first forward and the last backward the stages idle " + format_percent(profile.bubble_fraction) +
      " of the time (" + format_ms(profile.bubble_ms) + " a step); with " + std::to_string(profile.microbatches) +
      " microbatches on " + std::to_string(profile.stages) + " even stages " +
      (profile.chunks > 1 ? "of " + std::to_string(profile.chunks) + " chunks " : std::string()) +
      ideal_formula(facts, profile) + " = " + format_percent(ideal) +
      " is the least. Of the idle time, few microbatches explain " + format_ms(blame.few_microbatches) +
      ", unequal stages " + format_ms(blame.imbalance) + ", transfers " + format_ms(blame.transfer) +
      ", the first stage's loader " + format_ms(blame.late_loader) + ". A forward and backward pass takes";
  for (size_t s = 0; s < static_cast<size_t>(profile.stages); ++s) {
    text += (s == 0 ? " " : ", ") + format_ms(profile.stage_time(s)) + " on stage " + std::to_string(s);
  }
  return text + ".";
}

Suggestion suggest(const Facts& facts, const PipelineProfile& profile, const Predictor& predictor,
                   const Setting& setting) {
  Suggestion s;
  s.predicted = predictor.predict_step(setting);
  if (setting.divisor > 1) {
    const int64_t size = facts.config->train_micro_batch_size_per_gpu / setting.divisor;
    const int64_t steps = facts.config->gradient_accumulation_steps * setting.divisor;
    s.patch["train_micro_batch_size_per_gpu"] = size;
    s.patch["gradient_accumulation_steps"] = steps;
    s.why = std::to_string(steps) + " microbatches of " + std::to_string(size) +
            " lower the least possible bubble to " + format_percent(ideal_bubble(facts, profile, steps)) +
            "; each step still trains on the same samples.";
  }
  if (!setting.layers.empty()) {
    s.patch["parallel"]["pipeline_layers"] = setting.layers;
    s.why += std::string(s.why.empty() ? "" : " ") + "Moving layers off the slowest stage evens the stages out.";
    s.risk = "Checkpoints of the old split have to be resharded; the memory of the stages changes.";
  }
  return s;
}

std::vector<Evidence> pick_evidence(const Facts& facts) {
  struct Row {
    int64_t length;
    Evidence evidence;
  };
  std::vector<Row> rows;
  for (const metrics::RankMetrics& measured : facts.metrics.ranks) {
    const timeline::Rank& rank = *facts.timeline.find_rank(measured.rank);
    size_t at = 0;
    for (const metrics::StepPartition& p : measured.partitions) {
      for (const metrics::Segment& bubble : p.segments) {
        if (bubble.category != metrics::Category::pipeline_bubble) continue;
        // Segments and collectives are in time order; waits do not overlap on one thread.
        while (at < rank.collectives.size() && rank.collectives[at].start < p.start) ++at;
        for (size_t i = at; i < rank.collectives.size() && rank.collectives[i].start < p.end; ++i) {
          const timeline::Collective& c = rank.collectives[i];
          if (c.wait_start > bubble.start || c.wait_end < bubble.end) continue;
          rows.push_back(
              {bubble.end - bubble.start,
               {timeline::table_name(timeline::Table::collective), c.rowid, rank.rank, bubble.start, bubble.end,
                "step " + std::to_string(p.step) + ": stage " + std::to_string(rank.pp) + " waits in " +
                    timeline::op_name(c.op) + " for rank " + std::to_string(bubble.waits_for)}});
          break;
        }
      }
    }
  }
  const size_t count = std::min(rows.size(), kEvidenceRows);
  std::partial_sort(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count), rows.end(),
                    [](const Row& a, const Row& b) { return a.length > b.length; });
  std::vector<Evidence> evidence;
  for (size_t i = 0; i < count; ++i) evidence.push_back(std::move(rows[i].evidence));
  return evidence;
}

std::vector<Setting> cures(const Facts& facts, const PipelineProfile& profile, const Predictor& predictor) {
  if (!facts.config) return {};
  std::vector<Setting> settings;
  const Setting smaller = best_divisor(facts, profile, predictor, {});
  if (smaller.divisor > 1) settings.push_back(smaller);
  const std::vector<int64_t> split = best_split(facts, profile, predictor);
  if (!split.empty()) {
    settings.push_back({1, split});
    const Setting both = best_divisor(facts, profile, predictor, split);
    const double best_single = std::min(predictor.step_ms(settings.front()), predictor.step_ms(settings.back()));
    if (both.divisor > 1 && predictor.step_ms(both) < kWorthCombining * best_single) settings.push_back(both);
  }
  std::erase_if(settings,
                [&](const Setting& s) { return predictor.step_ms(s) > (1 - kLeastGainShare) * predictor.now_ms(); });
  std::stable_sort(settings.begin(), settings.end(),
                   [&](const Setting& a, const Setting& b) { return predictor.step_ms(a) < predictor.step_ms(b); });
  return settings;
}

}  // namespace

std::vector<Finding> detect_pipeline_bubble(const Facts& facts) {
  const auto profile = profile_pipeline(facts);
  if (!profile || facts.metrics.summary.step_ms <= 0) return {};
  const Predictor predictor(facts, *profile);
  const std::vector<Setting> settings = cures(facts, *profile, predictor);
  if (settings.empty() && profile->bubble_fraction < kNotableBubble) return {};

  const Blame blame = assign_blame(facts, *profile);
  Finding finding;
  for (const Setting& setting : settings) finding.suggestions.push_back(suggest(facts, *profile, predictor, setting));
  if (!settings.empty()) {
    // What the loader keeps the first stage waiting for belongs to the loader's finding.
    const double gain_ms = predictor.now_ms() - finding.suggestions[0].predicted.step_ms;
    finding.cost_ms_per_step = std::clamp(profile->bubble_ms - blame.late_loader, 0.0, gain_ms);
  }
  finding.cost_share = finding.cost_ms_per_step / predictor.now_ms();
  finding.title = "The pipeline idles " + format_percent(profile->bubble_fraction) + " of its span, mostly for " +
                  main_cause(blame, *profile);
  finding.explanation = explain(facts, *profile, blame);
  for (const timeline::Rank& rank : facts.timeline.ranks) finding.ranks.push_back(rank.rank);
  finding.evidence = pick_evidence(facts);
  return {std::move(finding)};
}

}  // namespace taut::detect
