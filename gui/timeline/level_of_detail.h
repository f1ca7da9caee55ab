// What to draw of a row with any number of slices: never more than the pixels can show, and nothing hidden.
//
// A slice of at least kFoldPx pixels is drawn as it is. Shorter ones are folded, kFoldPx pixels of time at a time, into
// a density cell that keeps how many they were and how long each kind was busy, so that a zoomed-out row still shows
// its mixture of kinds. The grid of the cells is fixed in time, so cells do not flicker when the view moves.
//
// Cost of drawing a row: O(pixels · log n) whatever n is. The idea of folding by binary search is the Tracy profiler's;
// cells that keep the mixture, from sums over blocks of slices, are ours. No ImGui here: tests compare these lists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analyzer/timeline/timeline.h"
#include "gui/timeline/view.h"

namespace taut::gui {

inline constexpr double kFoldPx = 3;

/// Slices of one line on screen: indices into a Slices, sorted by start and disjoint in time. `sums` holds the busy
/// time of each of `kinds` before every kSumBlock-th slice, row by row: (size / kSumBlock + 1) × kinds.size() values.
struct Row {
  std::vector<uint32_t> slice;
  std::vector<timeline::Kind> kinds;
  std::vector<int64_t> sums;

  size_t size() const { return slice.size(); }
};
inline constexpr size_t kSumBlock = 16;

/// Puts every slice of a lane into a row: into the row of its depth or, where that is still busy, into the first free
/// one below it. Overlapping slices are therefore never hidden. O(n · rows) for hostile input, O(n) for nested slices.
std::vector<Row> pack_rows(const timeline::Slices& slices);

/// How long a kind was busy in a folded cell.
struct KindTime {
  timeline::Kind kind = timeline::Kind::other;
  int64_t busy_ns = 0;
};

/// One thing to draw, in pixels from the left edge of the strip: a slice (count 1) or a density cell of `count` slices,
/// `row.slice[first]` being the first of them. `mix` of a cell: `mix_count` entries of DrawList::mixes from `mix_first`
/// on.
struct DrawItem {
  float x0 = 0, x1 = 0;
  uint32_t first = 0, count = 1;
  uint32_t mix_first = 0, mix_count = 0;
  timeline::Kind kind = timeline::Kind::other;  // the slice's, or what the cell was longest busy with
  float busy = 1;                               // share of [x0, x1] that is busy
};

/// Reused from row to row, so that a frame does not allocate.
struct DrawList {
  std::vector<DrawItem> items;
  std::vector<KindTime> mixes;
  void clear() {
    items.clear();
    mixes.clear();
  }
};

/// Appends what [view.shown] of `row` looks like on `width` pixels. At most 2 · width / kFoldPx + 4 items.
void fold_row(const timeline::Slices& slices, const Row& row, const View& view, double width, DrawList& out);

/// Index into `row.slice` of the slice at `time`, or of the nearest one within `reach_ns`; -1 = none. O(log n).
int64_t slice_at(const timeline::Slices& slices, const Row& row, double time, double reach_ns);

}  // namespace taut::gui
