// The time axis above a timeline and the lines that it drops through the lanes. Times are those of the trace: since the
// session start, as findings give them.
#pragma once

#include <imgui.h>

#include <string>

#include "gui/timeline/view.h"

namespace taut::gui {

inline constexpr float kRulerHeight = 24;

/// A mark's text, "1.25 s", with as many digits as marks `step_ns` apart need.
std::string ruler_text(double time_ns, double step_ns);

void draw_ruler(ImDrawList* draw, ImVec2 origin, float width, const View& view);
void draw_grid(ImDrawList* draw, ImVec2 origin, ImVec2 size, const View& view);

}  // namespace taut::gui
