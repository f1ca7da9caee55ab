// The timeline window: a line of legend and buttons, then the lanes.
#include <imgui.h>

#include "gui/app/theme.h"
#include "gui/panels/panels.h"
#include "gui/timeline/draw.h"

namespace taut::gui {

void draw_timeline_panel(App& app) {
  if (draw_without_document(app, app.shown)) return;
  const Document& document = *app.document();
  TimelineState& state = app.current().timeline;
  draw_legend(document.tracks);
  const char* const fit_label = "Fit";
  const float buttons = ImGui::CalcTextSize(fit_label).x + 2 * ImGui::GetStyle().FramePadding.x;
  ImGui::SameLine();
  ImGui::SetCursorPosX(ImGui::GetWindowWidth() - buttons - ImGui::GetStyle().WindowPadding.x);
  if (ImGui::SmallButton(fit_label)) {
    fit(state.view);
    state.mark.reset();
  }
  const DrawOptions options{.gutter = gutter_width(document.tracks), .with_keys = true, .with_tooltip = true};
  if (draw_timeline("main", document.timeline, document.tracks, state, options)) app.bring_to_front = Panel::details;
}

}  // namespace taut::gui
