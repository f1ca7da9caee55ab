#include "gui/timeline/layout.h"

#include <algorithm>

namespace taut::gui {

Layout make_layout(const std::vector<Track>& tracks, const Folding& folding, const LayoutStyle& style) {
  Layout layout;
  float y = 0;
  for (size_t i = 0; i < tracks.size(); ++i) {
    const Track& track = tracks[i];
    const bool new_rank = i == 0 || tracks[i - 1].rank != track.rank;
    const bool rank_folded = folding.ranks.contains(track.rank);
    if (new_rank) {
      if (i > 0) y += style.group_gap;
      layout.headers.push_back({track.rank, y, style.header_height, rank_folded});
      y += style.header_height;
    } else if (tracks[i - 1].section != track.section && !rank_folded) {
      y += style.section_gap;
    }
    // A folded rank keeps its steps, so that one still sees when it was busy.
    if (rank_folded && !(new_rank && track.section == Section::steps)) continue;
    int lines = static_cast<int>(track.rows.size());
    const int all = lines;
    if (folding.sections.contains({track.rank, track.section})) {
      lines = 1;
    } else if (!folding.deep.contains(static_cast<int32_t>(i))) {
      lines = std::min(lines, style.max_lines);
    }
    layout.tracks.push_back({static_cast<int32_t>(i), y, style.line_height, lines, all - lines});
    y += style.line_height * static_cast<float>(lines) + 1;
  }
  layout.height = y;
  return layout;
}

LineAt line_at(const Layout& layout, float y) {
  const auto after = std::upper_bound(layout.tracks.begin(), layout.tracks.end(), y,
                                      [](float value, const PlacedTrack& track) { return value < track.y; });
  if (after == layout.tracks.begin()) return {};
  const auto it = std::prev(after);
  const int line = static_cast<int>((y - it->y) / it->line_height);
  if (line >= it->lines) return {};
  return {static_cast<int32_t>(it - layout.tracks.begin()), line};
}

}  // namespace taut::gui
