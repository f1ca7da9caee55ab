// Before and after, side by side: the verdict, the numbers, where the time went, and both timelines at one scale.
#include <imgui.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "analyzer/report/escape.h"
#include "analyzer/report/units.h"
#include "analyzer/report/wording.h"
#include "gui/app/theme.h"
#include "gui/panels/panels.h"
#include "gui/timeline/draw.h"

namespace taut::gui {
namespace {

using tune::Comparison;
using tune::Verdict;

std::string verdict_text(const tune::Judgement& judgement) {
  char text[128];
  if (judgement.verdict == Verdict::no_change) {
    std::snprintf(text, sizeof text, "No real change");
  } else {
    const bool faster = judgement.verdict == Verdict::faster;
    std::snprintf(text, sizeof text, "%.2f times as %s", faster ? judgement.speedup : 1 / judgement.speedup,
                  faster ? "fast" : "slow");
  }
  return text;
}

ImU32 verdict_color(Verdict verdict) {
  return verdict == Verdict::faster ? kGood : verdict == Verdict::slower ? kBad : kWarn;
}

void draw_verdict(const Comparison& comparison) {
  const tune::Judgement& judgement = comparison.judgement;
  large_text(verdict_text(judgement), 1.7F, verdict_color(judgement.verdict));
  ImGui::SameLine(0, 20);
  ImGui::BeginGroup();
  char text[256];
  std::snprintf(text, sizeof text, "step %s to %s   (95 %% interval of the speed-up: %.2f to %.2f)",
                report::format_ms(judgement.median_a_ms).c_str(), report::format_ms(judgement.median_b_ms).c_str(),
                judgement.speedup_low, judgement.speedup_high);
  ImGui::TextUnformatted(text);
  std::string second;
  if (comparison.losses_equal) second = *comparison.losses_equal ? "Losses are the same." : "Losses differ.";
  if (comparison.prediction) {
    const auto& prediction = *comparison.prediction;
    second += (second.empty() ? "" : "  ") + std::string("Predicted ") + report::format_ms(prediction.step_ms) +
              ", measured " + report::format_ms(prediction.measured_step_ms) + ".";
  }
  colored_text(comparison.losses_equal == false ? kWarn : kTextDim, second);
  ImGui::EndGroup();
  ImGui::PushTextWrapPos(0);
  for (const std::string& warning : comparison.warnings) colored_text(kWarn, report::printable(warning));
  ImGui::PopTextWrapPos();
}

void number_row(const char* title, const std::string& a, const std::string& b) {
  ImGui::TableNextRow();
  ImGui::TableNextColumn();
  colored_text(kTextDim, title);
  ImGui::TableNextColumn();
  ImGui::TextUnformatted(a.c_str());
  ImGui::TableNextColumn();
  ImGui::TextUnformatted(b.c_str());
}

void draw_numbers(const Comparison& comparison, float width) {
  if (!ImGui::BeginTable("numbers", 3, ImGuiTableFlags_SizingStretchProp | ImGuiTableFlags_RowBg, {width, 0})) return;
  ImGui::TableSetupColumn("");
  ImGui::TableSetupColumn("before");
  ImGui::TableSetupColumn("after");
  ImGui::TableHeadersRow();
  const tune::SideNumbers &a = comparison.a, &b = comparison.b;
  const auto share = [](const std::optional<double>& value) {
    return value ? report::format_share(*value) : std::string("-");
  };
  number_row("step time", report::format_ms(comparison.judgement.median_a_ms),
             report::format_ms(comparison.judgement.median_b_ms));
  number_row("tokens/s", report::format_count(static_cast<int64_t>(a.tokens_per_s)),
             report::format_count(static_cast<int64_t>(b.tokens_per_s)));
  number_row("utilization", report::format_share(a.utilization), report::format_share(b.utilization));
  number_row("loader stall", report::format_share(a.loader_stall_share), report::format_share(b.loader_stall_share));
  number_row("communication", report::format_share(a.communication_share), report::format_share(b.communication_share));
  if (a.bubble_fraction || b.bubble_fraction)
    number_row("pipeline bubble", share(a.bubble_fraction), share(b.bubble_fraction));
  if (a.mfu || b.mfu) number_row("MFU", share(a.mfu), share(b.mfu));
  ImGui::EndTable();
}

// The same colours as in Breakdown; the longer bar is the slower run.
void draw_step_bar(const Comparison& comparison, const char* title, double tune::CategoryChange::*ms, double longest) {
  colored_text(kTextDim, title);
  ImGui::SameLine(60);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x, height = ImGui::GetFontSize() + 6;
  ImGui::Dummy({width, height});
  float x = at.x;
  for (const tune::CategoryChange& change : comparison.categories) {
    const float end = x + static_cast<float>(change.*ms / longest) * (width - 70);
    if (end - x >= 0.5F)
      ImGui::GetWindowDrawList()->AddRectFilled({x, at.y}, {std::max(end - 1, x + 0.5F), at.y + height},
                                                category_color(change.category), 2);
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    if (ImGui::IsItemHovered() && mouse.x >= x && mouse.x < end) {
      ImGui::SetTooltip("%s: %s before, %s after", report::category_title(change.category).c_str(),
                        report::format_ms(change.a_ms).c_str(), report::format_ms(change.b_ms).c_str());
    }
    x = end;
  }
  double total = 0;
  for (const tune::CategoryChange& change : comparison.categories) total += change.*ms;
  ImGui::GetWindowDrawList()->AddText({x + 6, at.y + 3}, kTextDim, report::format_ms(total).c_str());
}

void draw_where_time_went(const Comparison& comparison) {
  double a = 0, b = 0;
  for (const auto& change : comparison.categories) {
    a += change.a_ms;
    b += change.b_ms;
  }
  const double longest = std::max({a, b, 1e-9});
  colored_text(kTextDim, "Where a step's time goes (mean over ranks)");
  draw_step_bar(comparison, "before", &tune::CategoryChange::a_ms, longest);
  draw_step_bar(comparison, "after", &tune::CategoryChange::b_ms, longest);
  ImGui::Spacing();
  // What changed most, in words.
  std::vector<tune::CategoryChange> changes = comparison.categories;
  std::sort(changes.begin(), changes.end(),
            [](const auto& x, const auto& y) { return std::abs(x.a_ms - x.b_ms) > std::abs(y.a_ms - y.b_ms); });
  for (size_t i = 0; i < std::min<size_t>(changes.size(), 3); ++i) {
    const double difference = changes[i].b_ms - changes[i].a_ms;
    if (std::abs(difference) < 0.01 * longest) continue;
    const ImVec2 at = ImGui::GetCursorScreenPos();
    ImGui::GetWindowDrawList()->AddRectFilled({at.x, at.y + 3}, {at.x + 10, at.y + 13},
                                              category_color(changes[i].category), 2);
    ImGui::SetCursorPosX(ImGui::GetCursorPosX() + 16);
    ImGui::TextUnformatted((report::category_title(changes[i].category) + (difference < 0 ? "  -" : "  +") +
                            report::format_ms(std::abs(difference)) + " per step")
                               .c_str());
  }
}

void draw_config_changes(const Comparison& comparison) {
  if (comparison.config_changes.empty()) return;
  constexpr size_t kMostShown = 4;
  for (size_t i = 0; i < std::min(comparison.config_changes.size(), kMostShown); ++i) {
    const config::Change& change = comparison.config_changes[i];
    const auto value = [](const config::Json& json) {
      return json.is_discarded() ? std::string("unset") : json.dump();
    };
    colored_text(kTextDim, report::printable(change.key));
    ImGui::SameLine();
    ImGui::TextUnformatted(report::printable(value(change.before) + " to " + value(change.after)).c_str());
  }
  if (comparison.config_changes.size() > kMostShown) {
    colored_text(kTextDim, "and " + std::to_string(comparison.config_changes.size() - kMostShown) + " more changes");
  }
}

void draw_side(App& app, size_t side, float width) {
  Side& slot = app.sides[side];
  ImGui::BeginChild(side == 0 ? "before" : "after", {width, 0});
  pill(side == 0 ? "before" : "after", side == 0 ? kTextDim : kAccent);
  ImGui::SameLine();
  colored_text(kTextDim, slot.document->name);
  draw_timeline(side == 0 ? "before" : "after", slot.document->timeline, slot.document->tracks, slot.timeline,
                {.gutter = 104, .with_keys = true, .with_tooltip = true});
  ImGui::EndChild();
}

}  // namespace

void draw_compare_panel(App& app) {
  if (draw_without_document(app, 0)) return;
  if (!app.sides[1].document) {
    if (!app.sides[1].path.empty()) {
      draw_without_document(app, 1);
      return;
    }
    ImGui::PushTextWrapPos(0);
    colored_text(kTextDim,
                 "Open a second trace, or apply a suggestion and rerun: both runs then stand here side by side.");
    ImGui::PopTextWrapPos();
    if (ImGui::Button("Open a second trace")) {
      app.open_dialog = true;
      app.open_side = 1;
    }
    return;
  }
  if (!app.comparison_failure.what.empty()) {
    colored_text(kWarn, app.comparison_failure.what);
    colored_text(kTextDim, app.comparison_failure.hint);
  }
  if (app.comparing.running()) colored_text(kTextDim, "Comparing ...");
  if (app.comparison) {
    draw_verdict(*app.comparison);
    ImGui::Spacing();
    const float half = (ImGui::GetContentRegionAvail().x - 24) / 2;
    ImGui::BeginGroup();
    draw_numbers(*app.comparison, half);
    ImGui::EndGroup();
    ImGui::SameLine(0, 24);
    ImGui::BeginGroup();
    draw_where_time_went(*app.comparison);
    draw_config_changes(*app.comparison);
    ImGui::EndGroup();
  }
  ImGui::Spacing();
  if (ImGui::SmallButton("Align steps")) align_sides(app);
  ImGui::SameLine();
  if (ImGui::SmallButton("Continue from the second run")) {
    promote_second(app);
    return;
  }
  const float half = (ImGui::GetContentRegionAvail().x - ImGui::GetStyle().ItemSpacing.x) / 2;
  draw_side(app, 0, half);
  ImGui::SameLine();
  draw_side(app, 1, half);
}

}  // namespace taut::gui
