#include "analyzer/analyzer.h"

#include <algorithm>
#include <set>

#include "analyzer/detect/rule.h"
#include "analyzer/timeline/run_config.h"
#include "taut.h"

namespace taut::analyzer {
namespace {

constexpr size_t kFewSteps = 3;  // with no more than these, the first one counts although it warms up

std::set<int64_t> step_numbers(const timeline::Timeline& timeline) {
  std::set<int64_t> numbers;
  for (const timeline::Rank& rank : timeline.ranks) {
    for (const timeline::Step& step : rank.steps) numbers.insert(step.step);
  }
  return numbers;
}

metrics::StepRange choose_steps(const timeline::Timeline& timeline, const Options& options, Quality& quality) {
  const std::set<int64_t> numbers = step_numbers(timeline);
  const bool asked = options.steps.first || options.steps.last;
  if (numbers.empty()) {
    if (asked) {
      throw Error("--steps was given, but the trace has no steps",
                  "leave it out; the whole trace is then analysed as one span");
    }
    quality.warnings.push_back(
        "the trace has no steps (no TAUT_STEP, ProfilerStep# or Optimizer.step#): the whole span "
        "of each GPU is taken as one");
    return {};
  }
  if (timeline.step_source != timeline::StepSource::taut) {
    quality.warnings.push_back(std::string("steps are taken from the ranges ") +
                               timeline::step_source_name(timeline.step_source));
  }
  if (asked) {
    const bool any =
        std::any_of(numbers.begin(), numbers.end(), [&](int64_t step) { return options.steps.contains(step); });
    if (!any) {
      throw Error("no step of the trace lies in the range asked for with --steps",
                  "the trace has steps " + std::to_string(*numbers.begin()) + " to " +
                      std::to_string(*numbers.rbegin()) + "; the range A:B holds A, …, B-1");
    }
    return options.steps;
  }
  if (*numbers.begin() == 0 && numbers.size() > kFewSteps) {
    quality.warnings.push_back("step 0 is left out, since it warms up; --steps 0: includes it");
    return {.first = 1, .last = {}};
  }
  return {};
}

}  // namespace

Analysis analyze(const timeline::Timeline& timeline, const Options& options) {
  if (options.rank && !timeline.find_rank(*options.rank)) {
    throw Error("the trace has no rank " + std::to_string(*options.rank),
                timeline.ranks.empty() ? "it has no ranks at all"
                                       : "its ranks are " + std::to_string(timeline.ranks.front().rank) + " to " +
                                             std::to_string(timeline.ranks.back().rank));
  }
  Analysis analysis;
  analysis.quality.dropped_events = timeline.quality.dropped_events;
  analysis.quality.clock_error_ns = timeline.quality.clock_error_ns;
  analysis.quality.unmatched_correlations = timeline.quality.unmatched_correlations;
  analysis.quality.warnings = timeline.quality.warnings;
  const metrics::StepRange steps = choose_steps(timeline, options, analysis.quality);

  metrics::Metrics measured = metrics::measure(timeline, steps);
  const detect::Facts facts{timeline, measured, steps, timeline::run_config(timeline)};
  if (!facts.config && !timeline.config_json().empty()) {
    analysis.quality.warnings.push_back(
        "the trace's training config is not understood by this version; no patch can be "
        "made for it");
  }
  analysis.findings = detect::run_rules(facts);
  analysis.trace = {timeline.path, static_cast<int64_t>(timeline.ranks.size()),
                    static_cast<int64_t>(measured.steps.size()),
                    static_cast<double>(timeline.end_ns - timeline.start_ns) * 1e-9, timeline.events};
  analysis.summary = measured.summary;
  analysis.critical_path = std::move(measured.critical_path);
  for (metrics::RankMetrics& rank : measured.ranks) {
    if (!options.rank || rank.rank == *options.rank) analysis.ranks.push_back(std::move(rank));
  }
  return analysis;
}

}  // namespace taut::analyzer
