#include "gui/timeline/view.h"

#include <gtest/gtest.h>

namespace taut::gui {
namespace {

TEST(View, ZoomKeepsTheTimeUnderTheCursor) {
  View view = make_view(0, 1e9);
  for (const double anchor : {0.0, 0.25, 0.8}) {
    const double before = to_time(view, anchor * 1000, 1000);
    zoom(view, anchor, 0.5);
    EXPECT_NEAR(to_time(view, anchor * 1000, 1000), before, 1e-3);
  }
}

TEST(View, ZoomInAndOutReturnsToTheSamePlace) {
  View view = make_view(0, 1e9);
  frame(view, 4e8, 5e8);
  const TimeRange before = view.shown;
  for (int i = 0; i < 10; ++i) zoom(view, 0.3, 0.8);
  for (int i = 0; i < 10; ++i) zoom(view, 0.3, 1 / 0.8);
  EXPECT_NEAR(view.shown.begin, before.begin, 1);
  EXPECT_NEAR(view.shown.end, before.end, 1);
}

TEST(View, NeverZoomsBeyondItsLimits) {
  View view = make_view(0, 1e9);
  for (int i = 0; i < 500; ++i) zoom(view, 0.5, 0.7);
  EXPECT_DOUBLE_EQ(view.shown.length(), kShortestView_ns);
  for (int i = 0; i < 500; ++i) zoom(view, 0.5, 1.5);
  EXPECT_LE(view.shown.length(), 2e9);
  zoom(view, 0.5, 0);
  zoom(view, 0.5, -3);
  EXPECT_GT(view.shown.length(), 0);
}

TEST(View, ZoomingAtALimitDoesNotDrift) {
  View view = make_view(0, 1e9);
  for (int i = 0; i < 200; ++i) zoom(view, 0.5, 0.7);
  const TimeRange before = view.shown;
  for (int i = 0; i < 50; ++i) zoom(view, 0.9, 0.7);
  EXPECT_NEAR(view.shown.begin, before.begin, 1e-3);
}

TEST(View, PanningNeverLosesTheTrace) {
  View view = make_view(0, 1e9);
  frame(view, 1e8, 2e8);
  for (int i = 0; i < 1000; ++i) pan(view, -0.5);
  EXPECT_GT(view.shown.end, 0);
  for (int i = 0; i < 1000; ++i) pan(view, 0.5);
  EXPECT_LT(view.shown.begin, 1e9);
}

TEST(View, FrameShowsTheRangeInTheMiddle) {
  View view = make_view(0, 1e9);
  frame(view, 3e8, 4e8, 0.5);
  EXPECT_DOUBLE_EQ(view.shown.begin, 2.5e8);
  EXPECT_DOUBLE_EQ(view.shown.end, 4.5e8);
  frame(view, 5e8, 5e8);  // a mark has no length
  EXPECT_GT(view.shown.length(), 0);
  EXPECT_LT(view.shown.begin, 5e8);
  EXPECT_GT(view.shown.end, 5e8);
}

TEST(View, ATraceWithoutLengthCanBeShown) {
  const View view = make_view(77, 77);
  EXPECT_GT(view.shown.length(), 0);
}

TEST(View, RulerMarksAreRoundAndFarEnoughApart) {
  View view = make_view(0, 1e9);
  for (double length = 1e10; length > 60; length *= 0.37) {
    view.shown = {0, length};
    const double step = ruler_step_ns(view, 1000, 100);
    EXPECT_GE(to_x(view, step, 1000), 100 - 1e-6);
    EXPECT_LE(to_x(view, step, 1000), 250 + 1e-6);
  }
  view.shown = {0, 1e9};
  EXPECT_DOUBLE_EQ(ruler_step_ns(view, 1000, 100), 1e8);
}

}  // namespace
}  // namespace taut::gui
