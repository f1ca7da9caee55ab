#include "analyzer/report/wording.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "analyzer/report/escape.h"
#include "analyzer/report/units.h"
#include "runtime/config/load.h"
#include "taut.h"

namespace taut::report {
namespace {

constexpr size_t kMostRanksNamed = 16;

std::string plural(int64_t count, const std::string& noun) {
  return format_count(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string rank_list(const std::vector<int32_t>& ranks) {
  std::string out;
  for (size_t i = 0; i < ranks.size() && i < kMostRanksNamed; ++i) {
    out += (i ? ", " : "") + std::to_string(ranks[i]);
  }
  if (ranks.size() > kMostRanksNamed) out += ", … (" + std::to_string(ranks.size()) + " in all)";
  return out;
}

}  // namespace

Context context_of(const timeline::Timeline& timeline) {
  Context context;
  std::set<int64_t> steps;
  for (const auto& rank : timeline.ranks) {
    for (const auto& step : rank.steps) steps.insert(step.step);
  }
  context.steps_in_trace = static_cast<int64_t>(steps.size());
  const std::string_view text = timeline.config_json();
  if (!text.empty()) {
    Json config = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (config.is_object()) context.config = std::move(config);
  }
  return context;
}

std::string category_title(metrics::Category category) {
  std::string title = metrics::category_name(category);
  std::replace(title.begin(), title.end(), '_', ' ');
  return title;
}

std::string scope_sentence(const analyzer::Analysis& analysis, const Context& context) {
  const auto& trace = analysis.trace;
  std::string steps = plural(trace.steps, "step");
  if (context.steps_in_trace > trace.steps) {
    steps = format_count(trace.steps) + " of " + plural(context.steps_in_trace, "step");
  }
  return plural(trace.ranks, "rank") + ", " + steps + " analysed, " + format_ms(trace.duration_s * 1e3) + " traced, " +
         plural(trace.events, "event");
}

Table summary_table(const metrics::Summary& summary) {
  Table table{{{"", Align::left}, {"value", Align::right}}, {}};
  const auto add = [&](const std::string& name, const std::string& value) { table.rows.push_back({name, value}); };
  const auto add_share = [&](const std::string& name, const std::optional<double>& share) {
    if (share) add(name, format_share(*share));
  };
  add("step time", format_ms(summary.step_ms));
  if (summary.tokens_per_s > 0) add("tokens/s", format_count(std::llround(summary.tokens_per_s)));
  add_share("model FLOP/s utilization", summary.mfu);
  add("utilization", format_share(summary.utilization));
  add("communication share", format_share(summary.communication_share));
  add_share("communication hidden under compute", summary.overlap);
  add("loader stall", format_share(summary.loader_stall_share));
  add_share("pipeline bubble", summary.bubble_fraction);
  add_share("pipeline bubble of an ideal schedule", summary.ideal_bubble_fraction);
  if (summary.slowdown > 0) add("slowdown by stragglers", format_number(summary.slowdown, 3) + " ×");
  if (summary.straggler) {
    add("slowest rank", "rank " + std::to_string(summary.straggler->rank) + ", " +
                            format_share(summary.straggler->excess_share) + " of the step");
  }
  return table;
}

Table breakdown_table(const std::vector<metrics::RankMetrics>& ranks) {
  Table table;
  for (const char* const title : {"rank", "dp", "tp", "pp", "steps", "median", "p95"}) {
    table.columns.push_back({title, Align::right});
  }
  std::vector<metrics::Category> shown;  // a category that takes no time anywhere only makes the table wide
  for (const auto category : metrics::kAllCategories) {
    if (std::none_of(ranks.begin(), ranks.end(), [&](const auto& rank) { return rank.breakdown[category] > 0; }))
      continue;
    shown.push_back(category);
    const bool is_long = category == metrics::Category::exposed_communication;
    table.columns.push_back({is_long ? "exposed comm." : category_title(category), Align::right});
  }
  for (const auto& rank : ranks) {
    auto& row = table.rows.emplace_back();
    for (const int32_t number : {rank.rank, rank.dp, rank.tp, rank.pp}) row.push_back(std::to_string(number));
    row.push_back(format_count(rank.steps));
    row.push_back(rank.steps ? format_ms(rank.step_ms_median) : "-");
    row.push_back(rank.steps ? format_ms(rank.step_ms_p95) : "-");
    for (const auto category : shown) {
      row.push_back(rank.steps ? format_share(rank.breakdown[category]) : "-");
    }
  }
  return table;
}

bool has_breakdown(const analyzer::Analysis& analysis) {
  return std::any_of(analysis.ranks.begin(), analysis.ranks.end(), [](const auto& rank) { return rank.steps > 0; });
}

std::string breakdown_title(const analyzer::Analysis& analysis) {
  return analysis.trace.steps > 0 ? "Where the time of a step goes" : "Where the time goes";
}

std::string critical_path_sentence(const std::vector<metrics::CriticalPathShare>& path) {
  std::string out;
  for (const auto& part : path) {
    if (part.share < 0.001) continue;
    out += (out.empty() ? "" : ", ") + category_title(part.kind) + " " + format_share(part.share);
  }
  return out;
}

std::vector<std::string> caveats(const analyzer::Analysis& analysis) {
  std::vector<std::string> out;
  if (analysis.quality.clock_error_ns > 0 && analysis.trace.ranks > 1) {
    out.push_back("Clocks of different nodes agree to " + format_ns(double(analysis.quality.clock_error_ns)) + ".");
  }
  if (analysis.quality.unmatched_correlations > 0) {
    out.push_back(plural(analysis.quality.unmatched_correlations, "GPU event") + " without the call that launched it.");
  }
  out.insert(out.end(), analysis.quality.warnings.begin(), analysis.quality.warnings.end());
  return out;
}

std::string cost_sentence(const detect::Finding& finding) {
  std::string out =
      "costs " + format_ms(finding.cost_ms_per_step) + " of every step (" + format_share(finding.cost_share) + ")";
  if (!finding.ranks.empty())
    out += (finding.ranks.size() == 1 ? " on rank " : " on ranks ") + rank_list(finding.ranks);
  return out;
}

std::string prediction_sentence(const detect::Prediction& predicted) {
  return "predicted step time " + format_ms(predicted.step_ms) + " (" + format_ms(predicted.low) + " to " +
         format_ms(predicted.high) + "), " + format_number(predicted.speedup, 2) + " times as fast";
}

std::string evidence_sentence(const detect::Evidence& evidence) {
  std::string out =
      "rank " + std::to_string(evidence.rank) + " at " + format_number(double(evidence.start) / 1e9, 6) + " s";
  if (evidence.end > evidence.start) out += " for " + format_ns(double(evidence.end - evidence.start));
  if (!evidence.note.empty()) out += ": " + printable(evidence.note);
  return out + " (" + printable(evidence.table) + " row " + std::to_string(evidence.rowid) + ")";
}

std::vector<DiffLine> config_diff(const Json& config, const nlohmann::json& patch) {
  const Json before = config.is_object() ? config : Json::object();
  std::vector<DiffLine> out;
  for (const auto& change : config::diff(before, config::merge_patch(before, Json(patch)))) {
    const auto line = [&](char sign, const Json& value) {
      if (!value.is_discarded()) out.push_back({sign, printable(change.key + ": " + value.dump())});
    };
    line('-', change.before);
    line('+', change.after);
  }
  return out;
}

std::string apply_command(const std::string& trace_path, const detect::Suggestion& suggestion) {
  const std::string plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/+@%:,=";
  std::string path = printable(trace_path);
  if (path.empty() || path.find_first_not_of(plain) != std::string::npos) {
    std::string quoted = "'";
    for (const char c : path) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    path = quoted + "'";
  }
  return "taut apply " + path + " --suggestion '" + printable(suggestion.id) + "' --config IN.json -o OUT.json";
}

}  // namespace taut::report
