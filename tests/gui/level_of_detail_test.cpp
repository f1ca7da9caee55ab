// What a row is folded into, against a brute force over every slice.
#include "gui/timeline/level_of_detail.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

namespace taut::gui {
namespace {

using timeline::Kind;
using timeline::Slices;

constexpr size_t kKindCount = timeline::kKinds;

void add(Slices& slices, int64_t start, int64_t end, Kind kind = Kind::compute, uint16_t depth = 0) {
  slices.start.push_back(start);
  slices.end.push_back(end);
  slices.name.push_back(0);
  slices.kind.push_back(kind);
  slices.depth.push_back(depth);
  slices.parent.push_back(-1);
  slices.table.push_back(timeline::Table::nvtx);
  slices.rowid.push_back(static_cast<int64_t>(slices.start.size()));
}

// Disjoint slices of all lengths and kinds: from one to 100,000 ns, with gaps.
Slices random_slices(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> exponent(0, 5);
  Slices slices;
  int64_t at = 1000;
  for (size_t i = 0; i < count; ++i) {
    at += static_cast<int64_t>(std::pow(10, exponent(random) * 0.6)) - 1;
    const int64_t length = static_cast<int64_t>(std::pow(10, exponent(random)));
    add(slices, at, at + length, static_cast<Kind>(random() % kKindCount));
    at += length;
  }
  return slices;
}

View view_of(double begin, double end) {
  View view;
  view.whole = view.shown = {begin, end};
  return view;
}

TEST(LevelOfDetail, LongSlicesAreDrawnAsTheyAre) {
  Slices slices;
  add(slices, 0, 100, Kind::compute);
  add(slices, 100, 250, Kind::communication);
  add(slices, 600, 1000, Kind::loader);
  const auto rows = pack_rows(slices);
  ASSERT_EQ(rows.size(), 1U);
  DrawList list;
  fold_row(slices, rows[0], view_of(0, 1000), 1000, list);
  ASSERT_EQ(list.items.size(), 3U);
  EXPECT_FLOAT_EQ(list.items[1].x0, 100);
  EXPECT_FLOAT_EQ(list.items[1].x1, 250);
  EXPECT_EQ(list.items[1].kind, Kind::communication);
  EXPECT_EQ(list.items[2].count, 1U);
  EXPECT_FLOAT_EQ(list.items[2].x0, 600);
  EXPECT_TRUE(list.mixes.empty());
}

TEST(LevelOfDetail, ShortSlicesFoldIntoCellsThatKeepTheMixture) {
  // 300 slices of 1 ns on 30 pixels: two of compute, one of communication, all the way. A cell is 3 px = 30 ns.
  Slices slices;
  for (int i = 0; i < 300; ++i) add(slices, i, i + 1, i % 3 == 2 ? Kind::communication : Kind::compute);
  const auto rows = pack_rows(slices);
  DrawList list;
  fold_row(slices, rows[0], view_of(0, 300), 30, list);
  ASSERT_EQ(list.items.size(), 10U);
  for (const DrawItem& item : list.items) {
    EXPECT_EQ(item.count, 30U);
    EXPECT_EQ(item.kind, Kind::compute);
    EXPECT_FLOAT_EQ(item.busy, 1);
    ASSERT_EQ(item.mix_count, 2U);
    EXPECT_EQ(list.mixes[item.mix_first].busy_ns, 20);
    EXPECT_EQ(list.mixes[item.mix_first + 1].kind, Kind::communication);
    EXPECT_EQ(list.mixes[item.mix_first + 1].busy_ns, 10);
  }
}

TEST(LevelOfDetail, SaysHowBusyAHalfIdleCellIs) {
  Slices slices;
  for (int i = 0; i < 100; ++i) add(slices, i * 10, i * 10 + 5);
  const auto rows = pack_rows(slices);
  DrawList list;
  fold_row(slices, rows[0], view_of(0, 1000), 9, list);
  for (const DrawItem& item : list.items) EXPECT_NEAR(item.busy, 0.5, 0.02);
}

// Every slice in sight is in exactly one item, and every nanosecond of every kind is accounted for.
TEST(LevelOfDetail, NothingInSightIsLostOrCountedTwiceAtAnyZoom) {
  const Slices slices = random_slices(20'000, 7);
  const auto rows = pack_rows(slices);
  ASSERT_EQ(rows.size(), 1U);
  const auto end = static_cast<double>(slices.end.back());
  for (const double zoom : {1.0, 0.3, 0.05, 0.004, 0.0002}) {
    for (const double at : {0.0, 0.37, 0.9}) {
      const View view = view_of(end * at, end * at + end * zoom);
      DrawList list;
      fold_row(slices, rows[0], view, 1200, list);
      size_t drawn = 0;
      std::array<int64_t, kKindCount> busy{}, expected{};
      size_t expected_count = 0;
      int64_t next = -1;
      for (const DrawItem& item : list.items) {
        if (next >= 0) {
          EXPECT_EQ(item.first, next) << "zoom " << zoom;
        }
        next = static_cast<int64_t>(item.first) + item.count;
        drawn += item.count;
        EXPECT_LE(item.x0, item.x1);
        if (item.count == 1) busy[static_cast<size_t>(item.kind)] += slices.end[item.first] - slices.start[item.first];
        for (uint32_t m = 0; m < item.mix_count; ++m) {
          busy[static_cast<size_t>(list.mixes[item.mix_first + m].kind)] += list.mixes[item.mix_first + m].busy_ns;
        }
      }
      for (size_t i = 0; i < slices.size(); ++i) {
        if (static_cast<double>(slices.end[i]) <= view.shown.begin ||
            static_cast<double>(slices.start[i]) >= view.shown.end)
          continue;
        ++expected_count;
        expected[static_cast<size_t>(slices.kind[i])] += slices.end[i] - slices.start[i];
      }
      EXPECT_EQ(drawn, expected_count) << "zoom " << zoom << " at " << at;
      EXPECT_EQ(busy, expected) << "zoom " << zoom << " at " << at;
    }
  }
}

TEST(LevelOfDetail, AMillionSlicesNeverGiveMoreThanThePixelsShow) {
  Slices slices;
  for (int64_t i = 0; i < 1'000'000; ++i) add(slices, i * 100, i * 100 + 60 + i % 40, static_cast<Kind>(i % 4));
  const auto rows = pack_rows(slices);
  const double width = 1900;
  for (double length = 1e8; length > 1e3; length /= 3) {
    DrawList list;
    fold_row(slices, rows[0], view_of(12'345, 12'345 + length), width, list);
    EXPECT_LE(static_cast<double>(list.items.size()), 2 * width / kFoldPx + 4) << "at a length of " << length << " ns";
  }
}

TEST(LevelOfDetail, CellsStayInPlaceWhenTheViewMoves) {
  const Slices slices = random_slices(50'000, 3);
  const auto rows = pack_rows(slices);
  const auto end = static_cast<double>(slices.end.back());
  DrawList here, moved;
  fold_row(slices, rows[0], view_of(end * 0.2, end * 0.6), 1000, here);
  fold_row(slices, rows[0], view_of(end * 0.25, end * 0.65), 1000, moved);
  // Away from the borders, the same slices fold together.
  std::vector<uint32_t> firsts_here, firsts_moved;
  const auto middle = [&](const DrawItem& item) {
    return static_cast<double>(slices.start[item.first]) > end * 0.3 &&
           static_cast<double>(slices.start[item.first]) < end * 0.55;
  };
  for (const DrawItem& item : here.items) {
    if (middle(item)) firsts_here.push_back(item.first);
  }
  for (const DrawItem& item : moved.items) {
    if (middle(item)) firsts_moved.push_back(item.first);
  }
  EXPECT_EQ(firsts_here, firsts_moved);
}

TEST(LevelOfDetail, OverlapsGoToRowsOfTheirOwn) {
  Slices slices;  // all at depth 0, as three GPU streams merged into one lane would be
  add(slices, 0, 100);
  add(slices, 50, 150);
  add(slices, 60, 70);
  add(slices, 100, 120);
  const auto rows = pack_rows(slices);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].slice, (std::vector<uint32_t>{0, 3}));
  EXPECT_EQ(rows[1].slice, (std::vector<uint32_t>{1}));
  EXPECT_EQ(rows[2].slice, (std::vector<uint32_t>{2}));
}

TEST(LevelOfDetail, NestedSlicesLieBelowTheirParents) {
  Slices slices;
  add(slices, 0, 100, Kind::step, 0);
  add(slices, 10, 50, Kind::compute, 1);
  add(slices, 20, 30, Kind::copy, 2);
  add(slices, 60, 90, Kind::compute, 1);
  const auto rows = pack_rows(slices);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[1].slice, (std::vector<uint32_t>{1, 3}));
}

TEST(LevelOfDetail, FindsTheSliceUnderTheMouseOrTheNearest) {
  Slices slices;
  add(slices, 100, 200);
  add(slices, 300, 301);
  const auto rows = pack_rows(slices);
  EXPECT_EQ(slice_at(slices, rows[0], 150, 0), 0);
  EXPECT_EQ(slice_at(slices, rows[0], 250, 10), -1);
  EXPECT_EQ(slice_at(slices, rows[0], 295, 10), 1);
  EXPECT_EQ(slice_at(slices, rows[0], 305, 10), 1);
  EXPECT_EQ(slice_at(slices, rows[0], 205, 10), 0);
  EXPECT_EQ(slice_at(slices, rows[0], 1000, 10), -1);
}

TEST(LevelOfDetail, TimelessSlicesAndNegativeTimesAreDrawn) {
  Slices slices;
  add(slices, -500, -400);
  add(slices, -400, -400);
  add(slices, 10, 10);
  const auto rows = pack_rows(slices);
  DrawList list;
  size_t drawn = 0;
  for (const Row& row : rows) {
    list.clear();
    fold_row(slices, row, view_of(-1000, 1000), 500, list);
    for (const DrawItem& item : list.items) {
      drawn += item.count;
      EXPECT_GE(item.x1 - item.x0, 1);
    }
  }
  EXPECT_EQ(drawn, 3U);
}

}  // namespace
}  // namespace taut::gui
