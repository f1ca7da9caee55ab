// Where each rank's step time went: the run's numbers, then one stacked bar a rank.
#include <imgui.h>

#include <algorithm>

#include "analyzer/report/units.h"
#include "analyzer/report/wording.h"
#include "gui/app/theme.h"
#include "gui/panels/panels.h"

namespace taut::gui {
namespace {

using metrics::Category;
using metrics::RankMetrics;

void number(const char* title, const std::string& value, bool first = false) {
  if (!first) ImGui::SameLine(0, 26);
  ImGui::BeginGroup();
  colored_text(kTextDim, title);
  large_text(value, 1.25F, IM_COL32(222, 228, 238, 255));
  ImGui::EndGroup();
}

void draw_numbers(const metrics::Summary& summary) {
  number("step", summary.step_ms > 0 ? report::format_ms(summary.step_ms) : "-", true);
  number("tokens/s", summary.tokens_per_s > 0 ? report::format_count(static_cast<int64_t>(summary.tokens_per_s)) : "-");
  number("utilization", report::format_share(summary.utilization));
  if (summary.mfu) number("MFU", report::format_share(*summary.mfu));
}

void draw_legend(const std::vector<RankMetrics>& ranks) {
  const float right = ImGui::GetWindowPos().x + ImGui::GetWindowWidth() - ImGui::GetStyle().WindowPadding.x;
  bool first = true;
  for (const Category category : metrics::kAllCategories) {
    const bool present =
        std::any_of(ranks.begin(), ranks.end(), [&](const RankMetrics& r) { return r.breakdown[category] >= 0.001; });
    if (!present) continue;
    const std::string title = report::category_title(category);
    const float size = ImGui::GetFontSize() * 0.7F;
    if (!first) {
      ImGui::SameLine(0, 14);
      if (ImGui::GetCursorScreenPos().x + size + 5 + ImGui::CalcTextSize(title.c_str()).x > right) ImGui::NewLine();
    }
    first = false;
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float top = at.y + ImGui::GetFontSize() * 0.2F;
    ImGui::GetWindowDrawList()->AddRectFilled({at.x, top}, {at.x + size, top + size}, category_color(category), 2);
    ImGui::Dummy({size, ImGui::GetFontSize()});
    ImGui::SameLine(0, 5);
    colored_text(kTextDim, title);
  }
}

void draw_bar(const RankMetrics& rank, float width, float height) {
  const ImVec2 at = ImGui::GetCursorScreenPos();
  ImGui::Dummy({width, height});
  const bool hovered = ImGui::IsItemHovered();
  ImDrawList* draw = ImGui::GetWindowDrawList();
  draw->AddRectFilled(at, {at.x + width, at.y + height}, kGround, 3);
  float x = at.x;
  for (const Category category : metrics::kAllCategories) {
    const double share = rank.breakdown[category];
    const float end = x + static_cast<float>(share) * width;
    if (end - x >= 0.5F)
      draw->AddRectFilled({x, at.y}, {std::max(end - 1, x + 0.5F), at.y + height}, category_color(category), 2);
    const std::string text = report::format_share(share);
    const ImVec2 size = ImGui::CalcTextSize(text.c_str());
    if (end - x > size.x + 8) {
      const ImU32 color = category == Category::idle ? kTextDim : kTextOnColor;
      draw->AddText({x + (end - x - size.x) / 2, at.y + (height - size.y) / 2}, color, text.c_str());
    }
    if (hovered && ImGui::GetIO().MousePos.x >= x && ImGui::GetIO().MousePos.x < end) {
      ImGui::SetTooltip("%s: %s, %s of a step", report::category_title(category).c_str(), text.c_str(),
                        report::format_ms(share * rank.step_ms_median).c_str());
    }
    x = end;
  }
}

}  // namespace

void draw_breakdown_panel(App& app) {
  const Document* document = app.document();
  if (!document) return colored_text(kTextDim, "No trace is open.");
  const auto& ranks = document->analysis().ranks;
  draw_numbers(document->analysis().summary);
  if (ranks.empty()) return colored_text(kTextDim, "No rank of this trace has steps or GPU work to measure.");
  draw_legend(ranks);
  const ImGuiTableFlags flags = ImGuiTableFlags_ScrollY | ImGuiTableFlags_SizingFixedFit | ImGuiTableFlags_PadOuterX;
  if (!ImGui::BeginTable("ranks", 3, flags)) return;
  ImGui::TableSetupColumn("rank");
  ImGui::TableSetupColumn("bar", ImGuiTableColumnFlags_WidthStretch);
  ImGui::TableSetupColumn("step");
  const float height = ImGui::GetFontSize() + 7;
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(ranks.size()));
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      const RankMetrics& rank = ranks[static_cast<size_t>(i)];
      ImGui::TableNextRow();
      ImGui::TableNextColumn();
      ImGui::AlignTextToFramePadding();
      ImGui::Text("rank %d", rank.rank);
      ImGui::TableNextColumn();
      draw_bar(rank, ImGui::GetContentRegionAvail().x, height);
      ImGui::TableNextColumn();
      ImGui::AlignTextToFramePadding();
      colored_text(kTextDim, rank.step_ms_median > 0 ? report::format_ms(rank.step_ms_median) : "-");
    }
  }
  ImGui::EndTable();
}

}  // namespace taut::gui
