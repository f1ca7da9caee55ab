// What panels show before there is a trace: welcome, loading, or why it could not be opened.
#include <imgui.h>

#include "gui/app/theme.h"
#include "gui/panels/panels.h"

namespace taut::gui {

bool draw_without_document(App& app, size_t side) {
  Side& slot = app.sides[side];
  if (slot.document) return false;
  ImGui::PushTextWrapPos(0);
  if (slot.loading.running()) {
    colored_text(kTextDim, slot.loading.cancelling() ? "Stopping …" : "Opening " + slot.path);
    ImGui::TextUnformatted(slot.loading.phase().c_str());
    ImGui::ProgressBar(-static_cast<float>(ImGui::GetTime()), {-1, 4}, "");
    if (!slot.loading.cancelling() && ImGui::Button("Cancel")) cancel_loading(app, side);
  } else if (!slot.failure.what.empty()) {
    colored_text(kBad, "Cannot open " + slot.path);
    ImGui::TextUnformatted(slot.failure.what.c_str());
    if (!slot.failure.hint.empty()) colored_text(kTextDim, slot.failure.hint);
    if (ImGui::Button("Open another trace")) app.open_dialog = true;
  } else if (side == 0) {
    large_text("Open a trace to see what its steps wasted", 1.2F, IM_COL32(222, 228, 238, 255));
    colored_text(kTextDim,
                 "A run of taut train --trace FILE, or an Nsight Systems export (.sqlite). Drop the file here, or:");
    if (ImGui::Button("Open a trace")) app.open_dialog = true;
  }
  ImGui::PopTextWrapPos();
  return true;
}

}  // namespace taut::gui
