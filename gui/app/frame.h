// One frame of the window: menu bar, docked panels, dialogs. The same code draws the window, the screenshot and the
// tests.
#pragma once

#include "gui/app/app.h"

namespace taut::gui {

/// Between ImGui::NewFrame() and ImGui::Render(), with an ImPlot context. Calls update() first; reads no file, runs no
/// SQL.
void draw_frame(App& app);

}  // namespace taut::gui
