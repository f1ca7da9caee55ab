// Where each line of the timeline lies: a header per rank, below it the lines of its tracks, sections foldable. Heights
// in pixels, y from the top of the whole content, which the window scrolls. No ImGui.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "gui/timeline/tracks.h"

namespace taut::gui {

struct LayoutStyle {
  float header_height = 24, line_height = 18, section_gap = 4, group_gap = 8;
  int max_lines = 12;  // of one track; deeper ones are shown when the section is unfolded fully
};

/// What the user folded: a rank, or one section of a rank (then only its first line shows). `deep` = tracks shown with
/// all their lines.
struct Folding {
  std::set<int32_t> ranks;
  std::set<std::pair<int32_t, Section>> sections;
  std::set<int32_t> deep;
};

struct PlacedHeader {
  int32_t rank = -1;
  float y = 0, height = 0;
  bool folded = false;
};

/// One track; its lines follow each other from y on. `hidden_lines` more exist than `lines`.
struct PlacedTrack {
  int32_t track = 0;
  float y = 0, line_height = 0;
  int lines = 1, hidden_lines = 0;
  float height() const { return line_height * static_cast<float>(lines); }
};

struct Layout {
  std::vector<PlacedHeader> headers;
  std::vector<PlacedTrack> tracks;  // from top to bottom
  float height = 0;
};

/// Every line of every track has a place, unless the user folded it away or it is counted in `hidden_lines`. O(tracks).
Layout make_layout(const std::vector<Track>& tracks, const Folding& folding, const LayoutStyle& style);

/// The track and line at height y; track -1 = none. O(log tracks).
struct LineAt {
  int32_t placed = -1;  // index into Layout::tracks
  int line = 0;
};
LineAt line_at(const Layout& layout, float y);

}  // namespace taut::gui
