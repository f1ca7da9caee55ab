#include "gui/app/document.h"

#include <algorithm>
#include <limits>

#include "analyzer/report/escape.h"
#include "analyzer/report/wording.h"

namespace taut::gui {
namespace {

constexpr double kSlowStep = 1.25;    // a step this many times the median is marked in the graph
constexpr size_t kMostPoints = 4096;  // of a line in the graph: more than it has pixels

// One point for every few steps, which keeps the slowest and the fastest of them.
void thin_out(StepSeries& series) {
  const size_t stride = (series.step.size() + kMostPoints - 1) / kMostPoints;
  if (stride <= 1) return;
  size_t kept = 0;
  for (size_t i = 0; i < series.step.size(); i += stride, ++kept) {
    const size_t end = std::min(i + stride, series.step.size());
    const auto at = [&](std::vector<double>& values, size_t k) {
      return values.begin() + static_cast<std::ptrdiff_t>(k);
    };
    const auto slowest = std::max_element(at(series.slowest_ms, i), at(series.slowest_ms, end));
    const double step = series.step[static_cast<size_t>(slowest - series.slowest_ms.begin())];
    const double slowest_ms = *slowest,
                 fastest_ms = *std::min_element(at(series.fastest_ms, i), at(series.fastest_ms, end));
    series.step[kept] = step;
    series.slowest_ms[kept] = slowest_ms;
    series.fastest_ms[kept] = fastest_ms;
  }
  for (auto* values : {&series.step, &series.slowest_ms, &series.fastest_ms}) values->resize(kept);
}

StepSeries step_series(const analyzer::Analysis& analysis) {
  std::map<int64_t, std::pair<double, double>> by_step;  // fastest and slowest rank
  for (const auto& rank : analysis.ranks) {
    for (const auto& step : rank.partitions) {
      const double ms = static_cast<double>(step.duration_ns()) / 1e6;
      const auto [it, is_new] = by_step.try_emplace(step.step, ms, ms);
      it->second = {std::min(it->second.first, ms), std::max(it->second.second, ms)};
    }
  }
  StepSeries series;
  for (const auto& [step, ms] : by_step) {
    series.step.push_back(static_cast<double>(step));
    series.fastest_ms.push_back(ms.first);
    series.slowest_ms.push_back(ms.second);
  }
  if (series.step.empty()) return series;
  series.median_ms = tune::median(series.slowest_ms);
  for (size_t i = 0; i < series.step.size(); ++i) {
    if (series.slowest_ms[i] <= kSlowStep * series.median_ms) continue;
    series.slow_step.push_back(series.step[i]);
    series.slow_ms.push_back(series.slowest_ms[i]);
  }
  thin_out(series);
  return series;
}

FindingText finding_text(const detect::Finding& finding, const config::Json& config) {
  FindingText text;
  text.cost = report::cost_sentence(finding);
  for (const auto& evidence : finding.evidence) text.evidence.push_back(report::evidence_sentence(evidence));
  for (const auto& suggestion : finding.suggestions) {
    SuggestionText& out = text.suggestions.emplace_back();
    for (const auto& line : report::config_diff(config, suggestion.patch)) {
      out.diff.emplace_back(line.sign, report::printable(line.text));
    }
    if (suggestion.predicted.step_ms > 0) out.prediction = report::prediction_sentence(suggestion.predicted);
  }
  return text;
}

// "tp 2 · pp 2 · dp 2": the sizes of the mesh that are more than one.
std::string mesh_text(const timeline::Timeline& timeline) {
  int32_t tp = 0, pp = 0, dp = 0, cp = 0;
  for (const auto& rank : timeline.ranks) {
    tp = std::max(tp, rank.tp);
    pp = std::max(pp, rank.pp);
    dp = std::max(dp, rank.dp);
    cp = std::max(cp, rank.cp);
  }
  std::string text;
  const auto add = [&](const char* name, int32_t largest) {
    if (largest > 0)
      text += (text.empty() ? "" : " · ") + std::string(name) + " " + std::to_string(int64_t{largest} + 1);
  };
  add("tp", tp);
  add("pp", pp);
  add("cp", cp);
  add("dp", dp);
  return text;
}

}  // namespace

std::shared_ptr<const Document> load_document(const std::filesystem::path& path, Progress& progress) {
  auto document = std::make_shared<Document>();
  document->path = path.string();
  document->name = path.filename().string();
  progress.enter("reading " + document->name);
  document->timeline = timeline::load(path);
  progress.enter("measuring steps and looking for waste");
  document->run = tune::make_run(document->timeline);
  progress.enter("laying out " + std::to_string(document->timeline.events) + " slices");
  document->tracks = make_tracks(document->timeline);
  const report::Context context = report::context_of(document->timeline);
  document->config = context.config;
  document->steps = step_series(document->analysis());
  for (const auto& finding : document->analysis().findings) {
    document->findings.push_back(finding_text(finding, document->config));
  }
  document->scope = report::scope_sentence(document->analysis(), context);
  document->caveats = report::caveats(document->analysis());
  document->mesh = mesh_text(document->timeline);
  progress.enter("done");
  return document;
}

}  // namespace taut::gui
