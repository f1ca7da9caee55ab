// Draws a timeline into the current window and lets mouse and keys move it. The lists of what to draw come from
// layout.h and level_of_detail.h; this file only paints them.
//
// Mouse: wheel zooms at the cursor, shift+wheel or wheel over the names scrolls, dragging moves, middle or shift
// dragging zooms to the range, click selects, double click frames. Keys (with the window focused): W S zoom, A D move.
#pragma once

#include <vector>

#include "gui/timeline/state.h"

namespace taut::gui {

struct DrawOptions {
  float gutter = 150;  // width of the names on the left
  bool with_keys = true;
  bool with_tooltip = true;
};

/// Wide enough for the tracks' names, within reason.
float gutter_width(const std::vector<Track>& tracks);

/// Fills the rest of the window. Returns true when a slice was clicked, which is then `state.selected`.
bool draw_timeline(const char* id, const timeline::Timeline& timeline, const std::vector<Track>& tracks,
                   TimelineState& state, const DrawOptions& options = {});

/// The colours of the kinds that occur in these tracks, in one line.
void draw_legend(const std::vector<Track>& tracks);

}  // namespace taut::gui
