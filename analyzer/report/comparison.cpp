#include "analyzer/report/comparison.h"

#include <cmath>
#include <cstdio>

#include "analyzer/report/escape.h"
#include "analyzer/report/units.h"
#include "analyzer/report/wording.h"

namespace taut::report {
namespace {

using tune::Comparison;
using tune::Verdict;

std::string small_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", value);
  return text;
}

/// Change of a share in percentage points.
std::string points(double before, double after) {
  const std::string text = format_number((after - before) * 100, 1) + " points";
  return text[0] == '-' ? text : "+" + text;
}

Table before_after_table(const Comparison& c) {
  Table table{{{"", Align::left}, {"before (A)", Align::right}, {"after (B)", Align::right}, {"change", Align::right}},
              {}};
  const auto relative = [](double before, double after) {
    return before > 0 ? format_change(after / before - 1) : "-";
  };
  const auto add_share = [&](const char* name, double before, double after) {
    table.rows.push_back({name, format_share(before), format_share(after), points(before, after)});
  };
  table.rows.push_back(
      {"step time", format_ms(c.a.step_ms), format_ms(c.b.step_ms), relative(c.a.step_ms, c.b.step_ms)});
  if (c.a.tokens_per_s > 0 && c.b.tokens_per_s > 0) {
    table.rows.push_back({"tokens/s", format_count(std::llround(c.a.tokens_per_s)),
                          format_count(std::llround(c.b.tokens_per_s)), relative(c.a.tokens_per_s, c.b.tokens_per_s)});
  }
  add_share("utilization", c.a.utilization, c.b.utilization);
  if (c.a.mfu && c.b.mfu) add_share("model FLOP/s utilization", *c.a.mfu, *c.b.mfu);
  add_share("loader stall", c.a.loader_stall_share, c.b.loader_stall_share);
  add_share("pipeline bubble", c.a.bubble_fraction.value_or(0),
            c.b.bubble_fraction.value_or(0));  // no pipeline, no bubble
  add_share("communication share", c.a.communication_share, c.b.communication_share);
  return table;
}

std::string signed_ms(double ms) {
  const std::string text = format_ms(ms);
  return ms > 0 ? "+" + text : text;
}

Table category_table(const Comparison& c) {
  Table table{{{"ms per step, mean of ranks", Align::left},
               {"before (A)", Align::right},
               {"after (B)", Align::right},
               {"change", Align::right}},
              {}};
  for (const auto& change : c.categories) {
    if (change.a_ms == 0 && change.b_ms == 0) continue;
    table.rows.push_back({category_title(change.category), format_ms(change.a_ms), format_ms(change.b_ms),
                          signed_ms(change.b_ms - change.a_ms)});
  }
  return table;
}

std::string verdict_sentence(const Comparison& c) {
  const auto& j = c.judgement;
  const std::string interval =
      "95 % interval " + format_number(j.speedup_low, 2) + " to " + format_number(j.speedup_high, 2);
  if (j.verdict == Verdict::no_change) {
    return "No real change: B's step time differs by " + format_change(c.b.step_ms / c.a.step_ms - 1) +
           ", which is not beyond the noise of these runs (band ±" + format_share(j.noise_band) + ", " + interval +
           ").";
  }
  if (j.verdict == Verdict::faster) {
    return "B is faster: " + format_number(j.speedup, 2) + " times as fast as A (" + interval + ").";
  }
  return "B is slower: a step takes " + format_number(1 / j.speedup, 2) + " times as long as in A (speed-up " +
         format_number(j.speedup, 2) + ", " + interval + ").";
}

/// The category that explains most of the difference.
std::string reason_sentence(const Comparison& c) {
  if (c.judgement.verdict == Verdict::no_change) return {};
  const tune::CategoryChange* largest = nullptr;
  const double sign = c.judgement.verdict == Verdict::faster ? -1 : 1;
  for (const auto& change : c.categories) {
    const double gain = sign * (change.b_ms - change.a_ms);
    if (gain > 0 && (!largest || gain > sign * (largest->b_ms - largest->a_ms))) largest = &change;
  }
  if (!largest) return {};
  return "Most of it is " + category_title(largest->category) + ": " + format_ms(largest->a_ms) + " before, " +
         format_ms(largest->b_ms) + " after.";
}

std::string side_sentence(const char* name, const tune::SideNumbers& side) {
  return std::string(name) + "  " + printable(side.path) + "  (" +
         (side.runs > 1 ? format_count(side.runs) + " runs, " : "") + format_count(side.ranks) + " ranks, " +
         format_count(side.steps) + " steps compared)\n";
}

std::string loss_sentence(const Comparison& c) {
  if (!c.losses_equal) return "Losses: not compared (one of the runs has none for the same steps).";
  const std::string size = "largest difference " + small_number(*c.max_loss_diff) + " over " +
                           format_count(c.losses_compared) + " steps, tolerance " + small_number(c.loss_tolerance);
  return *c.losses_equal ? "Losses: the same (" + size + ")." : "Losses: DIFFERENT (" + size + ").";
}

std::string prediction_sentences(const tune::PredictionCheck& p) {
  std::string ids;
  for (const auto& id : p.suggestions) ids += (ids.empty() ? "" : ", ") + printable(id);
  std::string out = "Predicted for " + ids + ": " + format_ms(p.step_ms) + " (" + format_ms(p.low) + " to " +
                    format_ms(p.high) + "); measured " + format_ms(p.measured_step_ms);
  if (p.measured_step_ms > 0) out += ", prediction off by " + format_change(p.step_ms / p.measured_step_ms - 1);
  out += ".\n";
  if (!p.other_changes.empty()) {
    out += "  The prediction does not know of:";
    for (const auto& key : p.other_changes) out += " " + printable(key);
    out += "\n";
  }
  return out;
}

Json side_json(const tune::SideNumbers& side) {
  const auto optional = [](const std::optional<double>& value) { return value ? finite(*value) : Json(nullptr); };
  return {{"path", printable(side.path)},
          {"runs", side.runs},
          {"ranks", side.ranks},
          {"steps", side.steps},
          {"step_ms", finite(side.step_ms)},
          {"tokens_per_s", finite(side.tokens_per_s)},
          {"utilization", finite(side.utilization)},
          {"mfu", optional(side.mfu)},
          {"loader_stall_share", finite(side.loader_stall_share)},
          {"bubble_fraction", optional(side.bubble_fraction)},
          {"communication_share", finite(side.communication_share)}};
}

Json change_side(const Json& value) {
  return value.is_discarded() ? Json(nullptr) : value;
}

}  // namespace

std::string comparison_text(const Comparison& c, bool color) {
  const auto bold = [&](const std::string& text) { return color ? "\x1b[1m" + text + "\x1b[0m" : text; };
  std::string out = side_sentence("A", c.a) + side_sentence("B", c.b) + "\n";
  out += table_text(before_after_table(c)) + "\n";
  out += bold(verdict_sentence(c)) + "\n";
  const std::string reason = reason_sentence(c);
  if (!reason.empty()) out += reason + "\n";
  out += "\n" + table_text(category_table(c)) + "\n" + loss_sentence(c) + "\n";
  if (c.prediction) out += prediction_sentences(*c.prediction);
  if (!c.config_changes.empty()) out += "Config changes from A to B:\n";
  for (const auto& change : c.config_changes) {
    const auto text = [](const Json& value) { return value.is_discarded() ? std::string("(absent)") : value.dump(); };
    out += "  " + printable(change.key + ": " + text(change.before) + " -> " + text(change.after)) + "\n";
  }
  for (const auto& warning : c.warnings) out += "warning: " + printable(warning) + "\n";
  return out;
}

Json comparison_json(const Comparison& c) {
  Json categories = Json::array(), changes = Json::array(), warnings = Json::array(), prediction = nullptr;
  for (const auto& change : c.categories) {
    categories.push_back({{"category", metrics::category_name(change.category)},
                          {"a_ms", finite(change.a_ms)},
                          {"b_ms", finite(change.b_ms)},
                          {"change_ms", finite(change.b_ms - change.a_ms)}});
  }
  for (const auto& change : c.config_changes) {
    changes.push_back(
        {{"key", change.key}, {"before", change_side(change.before)}, {"after", change_side(change.after)}});
  }
  for (const auto& warning : c.warnings) warnings.push_back(printable(warning));
  if (c.prediction) {
    prediction = {{"suggestions", c.prediction->suggestions},
                  {"step_ms", finite(c.prediction->step_ms)},
                  {"low", finite(c.prediction->low)},
                  {"high", finite(c.prediction->high)},
                  {"measured_step_ms", finite(c.prediction->measured_step_ms)},
                  {"other_changes", c.prediction->other_changes}};
  }
  const auto& j = c.judgement;
  return {{"a", side_json(c.a)},
          {"b", side_json(c.b)},
          {"speedup", finite(j.speedup)},
          {"ci", Json::array({finite(j.speedup_low), finite(j.speedup_high)})},
          {"verdict", tune::verdict_name(j.verdict)},
          {"difference_ms", finite(j.difference_ms)},
          {"difference_ci_ms", Json::array({finite(j.difference_low_ms), finite(j.difference_high_ms)})},
          {"p_value", finite(j.p_value)},
          {"noise_band", finite(j.noise_band)},
          {"paired", j.paired},
          {"categories", categories},
          {"losses_equal", c.losses_equal ? Json(*c.losses_equal) : Json(nullptr)},
          {"max_loss_diff", c.max_loss_diff ? finite(*c.max_loss_diff) : Json(nullptr)},
          {"losses_compared", c.losses_compared},
          {"loss_tolerance", finite(c.loss_tolerance)},
          {"prediction", prediction},
          {"config_changes", changes},
          {"warnings", warnings}};
}

}  // namespace taut::report
