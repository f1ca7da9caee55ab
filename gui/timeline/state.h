// What one timeline on screen remembers from frame to frame: where it looks, what is folded, what is selected. No
// ImGui.
#pragma once

#include <cstdint>
#include <optional>

#include "gui/timeline/layout.h"
#include "gui/timeline/level_of_detail.h"
#include "gui/timeline/tracks.h"
#include "gui/timeline/view.h"

namespace taut::gui {

/// A stretch of one rank that is pointed out, such as a finding's evidence. Rank -1 = all ranks.
struct Mark {
  TimeRange range;
  int32_t rank = -1;
};

struct TimelineState {
  View view;
  Folding folding;
  SliceRef selected, hovered;
  std::optional<Mark> mark;
  int32_t scroll_to_track = -1;           // done in the next frame
  std::optional<double> zoom_drag_begin;  // time at which a zoom-to-range drag began
  Layout layout;                          // of the last frame
  DrawList scratch;
  size_t items_drawn = 0;  // in the last frame
};

}  // namespace taut::gui
