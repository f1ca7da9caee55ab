// What wasted time and what to do about it: cost, explanation, evidence to click, suggestions to tick, and the button
// that applies them and runs again.
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>

#include "analyzer/report/escape.h"
#include "analyzer/report/units.h"
#include "gui/app/theme.h"
#include "gui/panels/panels.h"

namespace taut::gui {
namespace {

using detect::Finding;
using detect::Severity;
using detect::Suggestion;

constexpr size_t kEvidenceShown = 5;

void wrapped(ImU32 color, const std::string& text) {
  ImGui::PushTextWrapPos(0);
  colored_text(color, report::printable(text));
  ImGui::PopTextWrapPos();
}

void draw_evidence(App& app, const Finding& finding, const FindingText& text) {
  if (finding.evidence.empty()) return;
  colored_text(kTextDim, "Evidence (click to see it in the timeline)");
  const bool all = ImGui::GetStateStorage()->GetBool(ImGui::GetID("all"), false);
  const size_t shown = all ? finding.evidence.size() : std::min(finding.evidence.size(), kEvidenceShown);
  for (size_t i = 0; i < shown; ++i) {
    ImGui::PushID(static_cast<int>(i));
    const ImVec2 at = ImGui::GetCursorScreenPos();
    ImGui::GetWindowDrawList()->AddCircleFilled({at.x + 5, at.y + ImGui::GetFontSize() / 2}, 2.5F, kAccent);
    ImGui::SetCursorPosX(ImGui::GetCursorPosX() + 14);
    const float width = ImGui::GetContentRegionAvail().x;
    const std::string line = report::printable(text.evidence[i]);
    const float height = ImGui::CalcTextSize(line.c_str(), nullptr, false, width).y;
    const ImVec2 text_at = ImGui::GetCursorScreenPos();
    if (ImGui::Selectable("##evidence", false, 0, {0, height})) show_evidence(app, finding.evidence[i]);
    const ImU32 color = ImGui::IsItemHovered() ? kAccent : IM_COL32(190, 199, 214, 255);
    ImGui::GetWindowDrawList()->AddText(nullptr, 0, text_at, color, line.c_str(), nullptr, width);
    ImGui::PopID();
  }
  if (finding.evidence.size() > kEvidenceShown) {
    const std::string label = all ? "show fewer" : "show all " + std::to_string(finding.evidence.size());
    if (ImGui::SmallButton((label + "###more").c_str())) ImGui::GetStateStorage()->SetBool(ImGui::GetID("all"), !all);
  }
}

void draw_suggestion(App& app, const Finding& finding, const Suggestion& suggestion, const SuggestionText& text) {
  const bool applies = app.shown == 0 && !suggestion.patch.empty();
  const auto chosen = app.chosen.find(finding.id);
  bool ticked = chosen != app.chosen.end() && chosen->second == suggestion.id;
  ImGui::PushID(suggestion.id.c_str());
  if (applies) {
    ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, {3, 1});
    if (ImGui::Checkbox("##apply", &ticked)) {
      app.chosen.erase(finding.id);  // alternatives exclude each other
      if (ticked) app.chosen[finding.id] = suggestion.id;
    }
    ImGui::PopStyleVar();
    ImGui::SameLine();
  }
  ImGui::BeginGroup();
  wrapped(IM_COL32(222, 228, 238, 255), suggestion.why);
  if (!text.diff.empty()) {
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float height = static_cast<float>(text.diff.size()) * ImGui::GetTextLineHeight() + 8;
    ImGui::GetWindowDrawList()->AddRectFilled(at, {at.x + ImGui::GetContentRegionAvail().x, at.y + height}, kGround, 4);
    float y = at.y + 4;
    for (const auto& [sign, line] : text.diff) {
      const ImU32 color = sign == '-' ? kBad : kGood;
      const std::string shown = std::string(1, sign) + "  " + line;
      ImGui::GetWindowDrawList()->AddText({at.x + 8, y}, color, shown.c_str());
      y += ImGui::GetTextLineHeight();
    }
    ImGui::Dummy({1, height});
  }
  if (!text.prediction.empty()) wrapped(kGood, text.prediction);
  if (!suggestion.risk.empty()) wrapped(kWarn, "Risk: " + suggestion.risk);
  ImGui::EndGroup();
  ImGui::PopID();
}

void draw_finding(App& app, const Finding& finding, const FindingText& text) {
  ImGui::PushID(finding.id.c_str());
  ImGui::SetNextItemOpen(finding.severity != Severity::low, ImGuiCond_Once);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const bool open = ImGui::CollapsingHeader((report::printable(finding.title) + "###finding").c_str());
  ImGui::GetWindowDrawList()->AddRectFilled({at.x, at.y}, {at.x + 3, ImGui::GetItemRectMax().y},
                                            severity_color(finding.severity));
  if (open) {
    ImGui::Indent(10);
    pill(detect::severity_name(finding.severity), severity_color(finding.severity));
    ImGui::SameLine();
    wrapped(severity_color(finding.severity), text.cost);
    wrapped(IM_COL32(190, 199, 214, 255), finding.explanation);
    draw_evidence(app, finding, text);
    if (!finding.suggestions.empty()) {
      ImGui::Spacing();
      colored_text(kTextDim, finding.suggestions.size() > 1 ? "Suggestions, best first" : "Suggestion");
    }
    for (size_t i = 0; i < finding.suggestions.size(); ++i) {
      draw_suggestion(app, finding, finding.suggestions[i], text.suggestions[i]);
    }
    ImGui::Unindent(10);
    ImGui::Spacing();
  }
  ImGui::PopID();
}

void draw_rerun_controls(App& app) {
  ImGui::Separator();
  const bool stored = app.sides[0].document->config.is_object();
  ImGui::SetNextItemWidth(-1);
  ImGui::InputTextWithHint(
      "##config", stored ? "Config: the one stored in the trace" : "Config: path of the file this run was made with",
      &app.settings.config);
  const bool possible = !app.chosen.empty() && !app.rerun.busy();
  ImGui::BeginDisabled(!possible);
  ImGui::PushStyleColor(ImGuiCol_Button, with_alpha(kAccent, 0.85F));
  ImGui::PushStyleColor(ImGuiCol_ButtonHovered, kAccent);
  ImGui::PushStyleColor(ImGuiCol_ButtonActive, brighter(kAccent, 0.85F));
  ImGui::PushStyleColor(ImGuiCol_Text, kTextOnColor);
  if (ImGui::Button("Apply and rerun", {-1, ImGui::GetFrameHeight() * 1.25F})) apply_and_rerun(app);
  ImGui::PopStyleColor(4);
  ImGui::EndDisabled();
}

}  // namespace

void draw_findings_panel(App& app) {
  const Document* document = app.document();
  if (!document) return colored_text(kTextDim, "No trace is open.");
  const auto& findings = document->analysis().findings;
  wrapped(kTextDim, document->scope);
  const bool can_apply = app.shown == 0 && !findings.empty();
  const float footer = can_apply ? ImGui::GetFrameHeight() * 2.25F + ImGui::GetStyle().ItemSpacing.y * 3 : 0;
  ImGui::BeginChild("list", {0, -footer});
  if (findings.empty()) {
    ImGui::Spacing();
    const bool has_steps = document->analysis().trace.steps > 0;
    large_text(has_steps ? "Nothing to mend" : "No steps to judge", 1.15F, has_steps ? kGood : kTextDim);
    wrapped(kTextDim, has_steps ? "No rule found waste worth a name in the steps of this trace."
                                : "Rules look at training steps, and this trace marks none.");
  }
  for (size_t i = 0; i < findings.size(); ++i) draw_finding(app, findings[i], document->findings[i]);
  ImGui::EndChild();
  if (can_apply) draw_rerun_controls(app);
}

}  // namespace taut::gui
