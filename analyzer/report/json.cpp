// `taut analyze --format json`, field by field.
#include <cmath>

#include "analyzer/report/escape.h"
#include "analyzer/report/report.h"

namespace taut::report {
namespace {

Json optional(const std::optional<double>& value) {
  return value ? finite(*value) : Json(nullptr);
}

Json rank_json(const metrics::RankMetrics& rank) {
  Json breakdown = Json::object();
  for (const auto category : metrics::kAllCategories) {
    breakdown[metrics::category_name(category)] = finite(rank.breakdown[category]);
  }
  return {{"rank", rank.rank},
          {"mesh", {{"dp", rank.dp}, {"tp", rank.tp}, {"pp", rank.pp}, {"cp", rank.cp}, {"ep", rank.ep}}},
          {"steps", rank.steps},
          {"step_ms", {{"median", finite(rank.step_ms_median)}, {"p95", finite(rank.step_ms_p95)}}},
          {"breakdown", breakdown},
          {"utilization", finite(rank.utilization)},
          {"communication_share", finite(rank.communication_share)},
          {"overlap", optional(rank.overlap)},
          {"memory_peak_bytes", rank.memory_peak_bytes}};
}

Json summary_json(const metrics::Summary& summary) {
  Json straggler = nullptr;
  if (summary.straggler) {
    straggler = {{"rank", summary.straggler->rank}, {"excess_share", finite(summary.straggler->excess_share)}};
  }
  return {{"step_ms", finite(summary.step_ms)},
          {"tokens_per_s", finite(summary.tokens_per_s)},
          {"mfu", optional(summary.mfu)},
          {"utilization", finite(summary.utilization)},
          {"communication_share", finite(summary.communication_share)},
          {"overlap", optional(summary.overlap)},
          {"bubble_fraction", optional(summary.bubble_fraction)},
          {"ideal_bubble_fraction", optional(summary.ideal_bubble_fraction)},
          {"loader_stall_share", finite(summary.loader_stall_share)},
          {"slowdown", finite(summary.slowdown)},
          {"straggler", straggler}};
}

Json finding_json(const detect::Finding& finding) {
  Json evidence = Json::array(), suggestions = Json::array();
  for (const auto& row : finding.evidence) {
    evidence.push_back({{"table", row.table},
                        {"rowid", row.rowid},
                        {"rank", row.rank},
                        {"start", row.start},
                        {"end", row.end},
                        {"note", printable(row.note)}});
  }
  for (const auto& suggestion : finding.suggestions) {
    const auto& predicted = suggestion.predicted;
    suggestions.push_back({{"id", suggestion.id},
                           {"patch", Json(suggestion.patch)},
                           {"why", printable(suggestion.why)},
                           {"predicted",
                            {{"step_ms", finite(predicted.step_ms)},
                             {"low", finite(predicted.low)},
                             {"high", finite(predicted.high)},
                             {"speedup", finite(predicted.speedup)}}},
                           {"risk", printable(suggestion.risk)}});
  }
  return {{"id", finding.id},
          {"rule", finding.rule},
          {"severity", detect::severity_name(finding.severity)},
          {"title", printable(finding.title)},
          {"explanation", printable(finding.explanation)},
          {"cost_ms_per_step", finite(finding.cost_ms_per_step)},
          {"cost_share", finite(finding.cost_share)},
          {"ranks", finding.ranks},
          {"evidence", evidence},
          {"suggestions", suggestions}};
}

}  // namespace

Json finite(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json json(const analyzer::Analysis& analysis) {
  Json warnings = Json::array(), ranks = Json::array(), path = Json::array(), findings = Json::array();
  for (const auto& warning : analysis.quality.warnings) warnings.push_back(printable(warning));
  for (const auto& rank : analysis.ranks) ranks.push_back(rank_json(rank));
  for (const auto& part : analysis.critical_path) {
    path.push_back({{"kind", metrics::category_name(part.kind)}, {"share", finite(part.share)}});
  }
  for (const auto& finding : analysis.findings) findings.push_back(finding_json(finding));
  return {{"trace",
           {{"path", printable(analysis.trace.path)},
            {"ranks", analysis.trace.ranks},
            {"steps", analysis.trace.steps},
            {"duration_s", finite(analysis.trace.duration_s)},
            {"events", analysis.trace.events}}},
          {"quality",
           {{"dropped_events", analysis.quality.dropped_events},
            {"clock_error_ns", analysis.quality.clock_error_ns},
            {"unmatched_correlations", analysis.quality.unmatched_correlations},
            {"warnings", warnings}}},
          {"ranks", ranks},
          {"summary", summary_json(analysis.summary)},
          {"critical_path", path},
          {"findings", findings}};
}

}  // namespace taut::report
