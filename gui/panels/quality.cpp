// How far the trace can be trusted, always in sight: what was lost, how well clocks agree, what else is odd.
#include <imgui.h>

#include "analyzer/report/units.h"
#include "gui/app/theme.h"
#include "gui/panels/panels.h"

namespace taut::gui {

void draw_quality_badge(const Document& document) {
  const analyzer::Quality& quality = document.analysis().quality;
  std::string text = "data complete";
  ImU32 color = kGood;
  if (quality.dropped_events > 0) {
    text = report::format_count(quality.dropped_events) + " events lost";
    color = kBad;
  } else if (!quality.warnings.empty()) {
    text = quality.warnings.size() == 1 ? "1 remark" : std::to_string(quality.warnings.size()) + " remarks";
    color = kWarn;
  } else if (quality.clock_error_ns > 0) {
    text = "clocks ±" + report::format_ns(static_cast<double>(quality.clock_error_ns));
  }
  pill(text.c_str(), color);
  if (!ImGui::IsItemHovered() || !ImGui::BeginTooltip()) return;
  ImGui::PushTextWrapPos(420);
  ImGui::Text("Events lost: %s", report::format_count(quality.dropped_events).c_str());
  ImGui::Text("Clock error between nodes: %s", report::format_ns(static_cast<double>(quality.clock_error_ns)).c_str());
  ImGui::Text("GPU work without its launch: %s", report::format_count(quality.unmatched_correlations).c_str());
  for (const std::string& caveat : document.caveats) colored_text(kTextDim, caveat);
  ImGui::PopTextWrapPos();
  ImGui::EndTooltip();
}

}  // namespace taut::gui
