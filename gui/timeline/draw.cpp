#include "gui/timeline/draw.h"

#include <imgui.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "analyzer/report/escape.h"
#include "analyzer/report/units.h"
#include "gui/app/theme.h"
#include "gui/timeline/ruler.h"

namespace taut::gui {
namespace {

using timeline::Kind;
using timeline::Slices;
using timeline::Timeline;

constexpr float kTextFrom = 34;  // a slice this wide gets its name
constexpr LayoutStyle kLayoutStyle{};

struct Canvas {
  ImDrawList* draw = nullptr;
  ImVec2 origin;  // of the strip: right of the names
  float width = 0;
  float top = 0, bottom = 0;  // visible part, screen coordinates
};

// Neighbours of one kind are told apart by a slightly different brightness, the same name by the same one.
ImU32 slice_color(const Track& track, const Slices& slices, uint32_t slice) {
  if (track.section == Section::steps)
    return slice % 2 == 0 ? kind_color(Kind::step) : brighter(kind_color(Kind::step), 0.78F);
  const uint32_t hash = slices.name[slice] * 2654435761U;
  return brighter(kind_color(slices.kind[slice]), 0.88F + static_cast<float>(hash >> 24) / 255 * 0.18F);
}

void draw_name(const Canvas& canvas, float x0, float x1, float y, float height, ImU32 color, const std::string& name) {
  x0 = std::max(x0, canvas.origin.x) + 4;
  x1 = std::min(x1, canvas.origin.x + canvas.width) - 3;
  if (x1 - x0 < kTextFrom - 8) return;
  const std::string text = report::printable(name);
  const float text_y = y + (height - ImGui::GetFontSize()) / 2 - 0.5F;
  const ImVec4 clip{x0, y, x1, y + height};
  canvas.draw->AddText(nullptr, 0, {x0, text_y}, color, text.c_str(), text.c_str() + text.size(), 0, &clip);
}

// Plain rectangles by the thousand, without what AddRectFilled has to ask each time. Reserves for `most`, gives back
// the rest.
class Quads {
 public:
  Quads(ImDrawList* draw, size_t most)
      : draw_(draw), left_(static_cast<int>(most)), uv_(ImGui::GetFontTexUvWhitePixel()) {
    draw_->PrimReserve(left_ * 6, left_ * 4);
  }
  ~Quads() { draw_->PrimUnreserve(left_ * 6, left_ * 4); }
  Quads(const Quads&) = delete;
  Quads& operator=(const Quads&) = delete;

  void add(float x0, float y0, float x1, float y1, ImU32 color) {
    const auto first = static_cast<ImDrawIdx>(draw_->_VtxCurrentIdx);
    for (const int corner : {0, 1, 2, 0, 2, 3}) draw_->PrimWriteIdx(static_cast<ImDrawIdx>(first + corner));
    draw_->PrimWriteVtx({x0, y0}, uv_, color);
    draw_->PrimWriteVtx({x1, y0}, uv_, color);
    draw_->PrimWriteVtx({x1, y1}, uv_, color);
    draw_->PrimWriteVtx({x0, y1}, uv_, color);
    --left_;
  }

 private:
  ImDrawList* draw_;
  int left_;
  ImVec2 uv_;
};

// A density cell: kinds stacked from the bottom, as high as they were busy.
void add_cell(Quads& quads, float left, const DrawItem& item, const DrawList& list, float y, float height) {
  const float x0 = left + item.x0, x1 = left + item.x1;
  int64_t total = 0;
  for (uint32_t m = 0; m < item.mix_count; ++m) total += list.mixes[item.mix_first + m].busy_ns;
  if (total == 0) return quads.add(x0, y, x1, y + height, kind_color(item.kind));
  const float full = std::max(height * std::min(item.busy, 1.0F), 1.5F);
  const float px_per_ns = full / static_cast<float>(total);
  float bottom = y + height;
  for (uint32_t m = 0; m < item.mix_count; ++m) {
    const KindTime& part = list.mixes[item.mix_first + m];
    const float part_height = static_cast<float>(part.busy_ns) * px_per_ns;
    if (part_height >= 0.3F) quads.add(x0, bottom - part_height, x1, bottom, kind_color(part.kind));
    bottom -= part_height;
  }
}

constexpr float kRoundedFrom = 6;  // a slice this wide gets round corners and a hair of ground beside it

// A slice with round corners, its name where there is room, and an outline where the user points at it.
void draw_wide_slice(const Canvas& canvas, const Timeline& timeline, const Track& track, uint32_t slice, float x0,
                     float x1, float y, float height) {
  const Slices& slices = slices_of(timeline, track);
  canvas.draw->AddRectFilled({x0, y}, {x1, y + height}, slice_color(track, slices, slice), 2);
  if (x1 - x0 < kTextFrom) return;
  const ImU32 text = slices.kind[slice] == Kind::step ? IM_COL32(214, 221, 233, 255) : kTextOnColor;
  draw_name(canvas, x0, x1, y, height, text, name_of(timeline, track, slice));
}

void draw_line(const Canvas& canvas, const Timeline& timeline, const Track& track, int32_t track_index, const Row& row,
               float y, float height, TimelineState& state) {
  const Slices& slices = slices_of(timeline, track);
  DrawList& list = state.scratch;
  list.clear();
  fold_row(slices, row, state.view, canvas.width, list);
  state.items_drawn += list.items.size();
  const float top = y + 1, inner = height - 2, left = canvas.origin.x;
  {
    Quads quads(canvas.draw, list.items.size() + list.mixes.size());
    for (const DrawItem& item : list.items) {
      if (item.count > 1) {
        add_cell(quads, left, item, list, top, inner);
      } else if (item.x1 - item.x0 < kRoundedFrom) {
        quads.add(left + item.x0, top, left + item.x1, top + inner, slice_color(track, slices, row.slice[item.first]));
      }
    }
  }
  for (const DrawItem& item : list.items) {
    if (item.count > 1) continue;
    const uint32_t slice = row.slice[item.first];
    const float x0 = left + item.x0, x1 = left + item.x1;
    if (x1 - x0 >= kRoundedFrom) draw_wide_slice(canvas, timeline, track, slice, x0, x1 - 1, top, inner);
    const SliceRef ref{track_index, slice};
    if (ref == state.selected || ref == state.hovered) {
      const ImU32 outline = ref == state.selected ? IM_COL32_WHITE : IM_COL32(255, 255, 255, 120);
      canvas.draw->AddRect({x0 - 1, top - 1}, {x1, top + inner + 1}, outline, 2.0F, 2.0F);
    }
  }
}

void draw_mark(const Canvas& canvas, const TimelineState& state, float y0, float y1) {
  const float x0 = canvas.origin.x + static_cast<float>(to_x(state.view, state.mark->range.begin, canvas.width));
  const float x1 = canvas.origin.x + static_cast<float>(to_x(state.view, state.mark->range.end, canvas.width));
  canvas.draw->AddRectFilled({x0, y0}, {std::max(x1, x0 + 2), y1}, with_alpha(kWarn, 0.13F));
  canvas.draw->AddLine({x0, y0}, {x0, y1}, with_alpha(kWarn, 0.8F), 1.5F);
  canvas.draw->AddLine({x1, y0}, {x1, y1}, with_alpha(kWarn, 0.8F), 1.5F);
}

// Top and bottom of a rank's part of the content.
std::pair<float, float> rank_extent(const Layout& layout, int32_t rank) {
  for (size_t i = 0; i < layout.headers.size(); ++i) {
    if (layout.headers[i].rank != rank) continue;
    return {layout.headers[i].y, i + 1 < layout.headers.size() ? layout.headers[i + 1].y : layout.height};
  }
  return {0, layout.height};
}

std::string header_text(const Timeline& timeline, int32_t rank) {
  if (rank < 0) return "other processes";
  std::string text = "rank " + std::to_string(rank);
  const timeline::Rank* of = timeline.find_rank(rank);
  if (!of) return text;
  const auto add = [&](const char* axis, int32_t value, bool used) {
    if (used) text += std::string("   ") + axis + " " + std::to_string(value);
  };
  bool dp = false, tp = false, pp = false;
  for (const timeline::Rank& other : timeline.ranks) {
    dp |= other.dp > 0;
    tp |= other.tp > 0;
    pp |= other.pp > 0;
  }
  add("pp", of->pp, pp);
  add("dp", of->dp, dp && (tp || pp));
  add("tp", of->tp, tp);
  if (of->node > 0) add("node", of->node, true);
  return text;
}

// Names on the left, drawn after the slices so that nothing runs into them. A click on a header or name folds.
void draw_names(const Canvas& canvas, const Timeline& timeline, const std::vector<Track>& tracks, TimelineState& state,
                float left, float gutter, float content_top) {
  ImDrawList* draw = canvas.draw;
  draw->AddRectFilled({left, canvas.top}, {left + gutter, canvas.bottom}, IM_COL32(24, 28, 36, 255));
  for (const PlacedHeader& header : state.layout.headers) {
    const float y = content_top + header.y;
    if (y + header.height < canvas.top || y > canvas.bottom) continue;
    draw->AddRectFilled({left, y}, {canvas.origin.x + canvas.width, y + header.height - 2}, kHeader, 3);
    const float middle = y + header.height / 2 - 1;
    if (header.folded) {
      draw->AddTriangleFilled({left + 8, middle - 4}, {left + 8, middle + 4}, {left + 14, middle}, kTextDim);
    } else {
      draw->AddTriangleFilled({left + 7, middle - 3}, {left + 15, middle - 3}, {left + 11, middle + 3}, kTextDim);
    }
    draw->AddText({left + 22, y + (header.height - ImGui::GetFontSize()) / 2 - 1}, IM_COL32(222, 228, 238, 255),
                  header_text(timeline, header.rank).c_str());
  }
  for (const PlacedTrack& placed : state.layout.tracks) {
    const float y = content_top + placed.y;
    if (y + placed.height() < canvas.top || y > canvas.bottom) continue;
    const Track& track = tracks[static_cast<size_t>(placed.track)];
    std::string title = report::printable(track.title);
    if (placed.hidden_lines > 0) title += "  +" + std::to_string(placed.hidden_lines);
    const ImVec4 clip{left, y, left + gutter - 6, y + std::max(placed.height(), placed.line_height)};
    draw->AddText(nullptr, 0, {left + 22, y + (placed.line_height - ImGui::GetFontSize()) / 2}, kTextDim, title.c_str(),
                  title.c_str() + title.size(), 0, &clip);
  }
}

void toggle_at(const std::vector<Track>& tracks, TimelineState& state, float y) {
  const auto toggle = [](auto& set, const auto& key) {
    if (!set.erase(key)) set.insert(key);
  };
  for (const PlacedHeader& header : state.layout.headers) {
    if (y >= header.y && y < header.y + header.height) return toggle(state.folding.ranks, header.rank);
  }
  const LineAt at = line_at(state.layout, y);
  if (at.placed < 0) return;
  const PlacedTrack& placed = state.layout.tracks[static_cast<size_t>(at.placed)];
  const Track& track = tracks[static_cast<size_t>(placed.track)];
  if (state.folding.sections.contains({track.rank, track.section}) || placed.hidden_lines == 0) {
    toggle(state.folding.sections, std::pair{track.rank, track.section});
  } else {
    toggle(state.folding.deep, placed.track);
  }
}

SliceRef slice_under(const Timeline& timeline, const std::vector<Track>& tracks, const TimelineState& state, float x,
                     float y, float width) {
  const LineAt at = line_at(state.layout, y);
  if (at.placed < 0 || x < 0 || x > width) return {};
  const int32_t index = state.layout.tracks[static_cast<size_t>(at.placed)].track;
  const Track& track = tracks[static_cast<size_t>(index)];
  const Row& row = track.rows[static_cast<size_t>(at.line)];
  const double reach = state.view.shown.length() / width * 2;  // two pixels
  const int64_t found = slice_at(slices_of(timeline, track), row, to_time(state.view, x, width), reach);
  return found < 0 ? SliceRef{} : SliceRef{index, row.slice[static_cast<size_t>(found)]};
}

void slice_tooltip(const Timeline& timeline, const std::vector<Track>& tracks, const TimelineState& state) {
  const Track& track = tracks[static_cast<size_t>(state.hovered.track)];
  const Slices& slices = slices_of(timeline, track);
  const uint32_t i = state.hovered.slice;
  if (!ImGui::BeginTooltip()) return;
  ImGui::TextUnformatted(report::shorten(report::printable(name_of(timeline, track, i)), 90).c_str());
  colored_text(kTextDim, report::format_ns(static_cast<double>(slices.end[i] - slices.start[i])) + "   at " +
                             report::format_ns(static_cast<double>(slices.start[i])));
  if (track.section != Section::steps && track.section != Section::passes) {
    colored_text(kind_color(slices.kind[i]), kind_title(slices.kind[i]));
  }
  ImGui::EndTooltip();
}

void move_by_keys(View& view) {
  if (ImGui::GetIO().WantTextInput || ImGui::GetIO().KeyCtrl) return;
  if (ImGui::IsKeyPressed(ImGuiKey_W)) zoom(view, 0.5, 0.8);
  if (ImGui::IsKeyPressed(ImGuiKey_S)) zoom(view, 0.5, 1.25);
  if (ImGui::IsKeyPressed(ImGuiKey_A) || ImGui::IsKeyPressed(ImGuiKey_LeftArrow)) pan(view, -0.1);
  if (ImGui::IsKeyPressed(ImGuiKey_D) || ImGui::IsKeyPressed(ImGuiKey_RightArrow)) pan(view, 0.1);
}

// Wheel, drags and clicks over the lines. `x`, `y`: the mouse on the strip and in the content.
bool handle_mouse(const Timeline& timeline, const std::vector<Track>& tracks, TimelineState& state,
                  const Canvas& canvas, float x, float y) {
  const ImGuiIO& io = ImGui::GetIO();
  const bool over_names = x < 0;
  if (ImGui::IsItemHovered() && io.MouseWheel != 0) {
    if (over_names || io.KeyShift) {
      ImGui::SetScrollY(ImGui::GetScrollY() - io.MouseWheel * 3 * kLayoutStyle.line_height);
    } else {
      zoom(state.view, static_cast<double>(x) / canvas.width, std::pow(0.8, io.MouseWheel * (io.KeyCtrl ? 0.35 : 1)));
    }
  }
  const bool ranging =
      ImGui::IsMouseDown(ImGuiMouseButton_Middle) || (ImGui::IsMouseDown(ImGuiMouseButton_Left) && io.KeyShift);
  if (ImGui::IsItemActive() && !over_names && ranging && !state.zoom_drag_begin) {
    state.zoom_drag_begin = to_time(state.view, x, canvas.width);
  }
  if (state.zoom_drag_begin && !ImGui::IsMouseDown(ImGuiMouseButton_Middle) &&
      !ImGui::IsMouseDown(ImGuiMouseButton_Left)) {
    const double end = to_time(state.view, x, canvas.width);
    if (std::abs(to_x(state.view, end, canvas.width) - to_x(state.view, *state.zoom_drag_begin, canvas.width)) > 4) {
      frame(state.view, *state.zoom_drag_begin, end, 0);
    }
    state.zoom_drag_begin.reset();
    return false;
  }
  if (ImGui::IsItemActive() && !state.zoom_drag_begin &&
      (ImGui::IsMouseDragging(ImGuiMouseButton_Left, 4) || ImGui::IsMouseDragging(ImGuiMouseButton_Right, 2))) {
    pan(state.view, -static_cast<double>(io.MouseDelta.x) / canvas.width);
    ImGui::SetScrollY(ImGui::GetScrollY() - io.MouseDelta.y);
    return false;
  }
  if (!ImGui::IsItemHovered()) return false;
  if (ImGui::IsMouseReleased(ImGuiMouseButton_Left) && io.MouseDragMaxDistanceSqr[0] < 16) {
    if (over_names) {
      toggle_at(tracks, state, y);
      return false;
    }
    state.selected = slice_under(timeline, tracks, state, x, y, canvas.width);
    return state.selected.track >= 0;
  }
  if (ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left) && !over_names) {
    const SliceRef slice = slice_under(timeline, tracks, state, x, y, canvas.width);
    if (slice.track < 0) return false;
    const Slices& slices = slices_of(timeline, tracks[static_cast<size_t>(slice.track)]);
    frame(state.view, static_cast<double>(slices.start[slice.slice]), static_cast<double>(slices.end[slice.slice]));
  }
  return false;
}

}  // namespace

float gutter_width(const std::vector<Track>& tracks) {
  float widest = 0;
  for (const Track& track : tracks) widest = std::max(widest, ImGui::CalcTextSize(track.title.c_str()).x);
  return std::clamp(widest + 22 + 34, 104.0F, 210.0F);  // indent, and room for the number of hidden lines
}

bool draw_timeline(const char* id, const Timeline& timeline, const std::vector<Track>& tracks, TimelineState& state,
                   const DrawOptions& options) {
  if (tracks.empty()) {
    colored_text(kTextDim, "This trace has no slices to draw.");
    return false;
  }
  ImGui::PushID(id);
  const bool has_keys =
      ImGui::IsWindowFocused(ImGuiFocusedFlags_ChildWindows) || ImGui::IsWindowHovered(ImGuiHoveredFlags_ChildWindows);
  if (options.with_keys && has_keys) move_by_keys(state.view);

  const ImVec2 area = ImGui::GetContentRegionAvail();
  const float width = std::max(area.x - options.gutter - ImGui::GetStyle().ScrollbarSize, 20.0F);
  const ImVec2 ruler_at = ImGui::GetCursorScreenPos();
  draw_ruler(ImGui::GetWindowDrawList(), {ruler_at.x + options.gutter, ruler_at.y}, width, state.view);
  ImGui::Dummy({area.x, kRulerHeight});
  ImGui::SetCursorScreenPos({ruler_at.x, ruler_at.y + kRulerHeight});

  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {0, 0});
  ImGui::BeginChild(
      "lines", {0, std::max(area.y - kRulerHeight, 20.0F)}, ImGuiChildFlags_None,
      ImGuiWindowFlags_NoScrollWithMouse | ImGuiWindowFlags_AlwaysVerticalScrollbar | ImGuiWindowFlags_NoNav);
  ImGui::PopStyleVar();
  state.layout = make_layout(tracks, state.folding, kLayoutStyle);
  const ImVec2 window_at = ImGui::GetWindowPos();
  const ImVec2 content_at = ImGui::GetCursorScreenPos();
  const Canvas canvas{ImGui::GetWindowDrawList(),
                      {window_at.x + options.gutter, window_at.y},
                      width,
                      window_at.y,
                      window_at.y + ImGui::GetWindowHeight()};
  ImGui::InvisibleButton(
      "canvas", {options.gutter + width, std::max(state.layout.height, ImGui::GetWindowHeight())},
      ImGuiButtonFlags_MouseButtonLeft | ImGuiButtonFlags_MouseButtonRight | ImGuiButtonFlags_MouseButtonMiddle);
  const bool hovered = ImGui::IsItemHovered();
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const float x = mouse.x - canvas.origin.x, y = mouse.y - content_at.y;
  const bool clicked = handle_mouse(timeline, tracks, state, canvas, x, y);
  state.hovered = hovered && options.with_tooltip ? slice_under(timeline, tracks, state, x, y, width) : SliceRef{};

  state.items_drawn = 0;
  canvas.draw->PushClipRect({canvas.origin.x, canvas.top}, {canvas.origin.x + width, canvas.bottom}, true);
  for (const PlacedTrack& placed : state.layout.tracks) {
    const float top = content_at.y + placed.y;
    if (state.scroll_to_track == placed.track) {
      ImGui::SetScrollY(std::max(0.0F, placed.y - kLayoutStyle.header_height - 4));
    }
    if (top + placed.height() < canvas.top || top > canvas.bottom) continue;
    const Track& track = tracks[static_cast<size_t>(placed.track)];
    canvas.draw->AddRectFilled({canvas.origin.x, top}, {canvas.origin.x + width, top + placed.height()}, kLane);
    for (int line = 0; line < placed.lines; ++line) {
      const float line_top = top + static_cast<float>(line) * placed.line_height;
      if (line_top + placed.line_height < canvas.top || line_top > canvas.bottom) continue;
      draw_line(canvas, timeline, track, placed.track, track.rows[static_cast<size_t>(line)], line_top,
                placed.line_height, state);
    }
  }
  state.scroll_to_track = -1;
  draw_grid(canvas.draw, {canvas.origin.x, canvas.top}, {canvas.width, canvas.bottom - canvas.top}, state.view);
  if (state.mark) {
    const auto [y0, y1] = rank_extent(state.layout, state.mark->rank);
    draw_mark(canvas, state, content_at.y + y0, content_at.y + y1);
  }
  if (state.zoom_drag_begin) {
    const float x0 = canvas.origin.x + static_cast<float>(to_x(state.view, *state.zoom_drag_begin, width));
    canvas.draw->AddRectFilled({std::min(x0, mouse.x), canvas.top}, {std::max(x0, mouse.x), canvas.bottom},
                               with_alpha(kAccent, 0.2F));
  }
  canvas.draw->PopClipRect();
  draw_names(canvas, timeline, tracks, state, window_at.x, options.gutter, content_at.y);
  if (state.hovered.track >= 0 && !ImGui::IsItemActive()) slice_tooltip(timeline, tracks, state);
  ImGui::EndChild();
  ImGui::PopID();
  return clicked;
}

void draw_legend(const std::vector<Track>& tracks) {
  std::array<bool, timeline::kKinds> present{};
  for (const Track& track : tracks) {
    if (track.section == Section::steps || track.section == Section::passes) continue;
    for (const Row& row : track.rows) {
      for (const Kind kind : row.kinds) present[static_cast<size_t>(kind)] = true;
    }
  }
  bool first = true;
  for (size_t k = 0; k < timeline::kKinds; ++k) {
    if (!present[k]) continue;
    if (!first) ImGui::SameLine(0, 14);
    first = false;
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float size = ImGui::GetFontSize() * 0.7F, top = at.y + ImGui::GetFontSize() * 0.2F;
    ImGui::GetWindowDrawList()->AddRectFilled({at.x, top}, {at.x + size, top + size}, kind_color(static_cast<Kind>(k)),
                                              2);
    ImGui::Dummy({size, ImGui::GetFontSize()});
    ImGui::SameLine(0, 5);
    colored_text(kTextDim, kind_title(static_cast<Kind>(k)));
  }
  if (first) ImGui::NewLine();
}

}  // namespace taut::gui
