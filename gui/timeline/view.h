// The stretch of time that a timeline shows, and how keys and wheel move it. Pure arithmetic, no drawing.
//
// Times are nanoseconds since the session start, as doubles: exact to a nanosecond for sessions of up to 104 days.
#pragma once

namespace taut::gui {

struct TimeRange {
  double begin = 0, end = 1;
  double length() const { return end - begin; }
};

/// `whole` = first start to last end of the trace; `shown` = what is on screen. Always shown.length() > 0.
struct View {
  TimeRange whole, shown;
};

/// Nobody zooms in further than this: 50 ns across the screen.
inline constexpr double kShortestView_ns = 50;

/// A view of everything between two times; a trace without length gets a millisecond.
View make_view(double begin_ns, double end_ns);

/// Makes the shown range `factor` times as long, keeping the time at `anchor` (0 = left edge, 1 = right) in its place.
void zoom(View& view, double anchor, double factor);

/// Moves by a share of the shown range; positive = to later times. At least a tenth of the screen keeps showing the
/// trace.
void pan(View& view, double share);

/// Shows everything.
void fit(View& view);

/// Shows [begin, end] in the middle, with `margin` of its length free on both sides.
void frame(View& view, double begin_ns, double end_ns, double margin = 0.2);

/// Horizontal place of a time on a strip of `width` pixels, and back.
inline double to_x(const View& view, double time_ns, double width) {
  return (time_ns - view.shown.begin) / view.shown.length() * width;
}
inline double to_time(const View& view, double x, double width) {
  return view.shown.begin + x / width * view.shown.length();
}

/// A round distance (1, 2 or 5 times a power of ten, in ns) between ruler marks that are at least `min_px` apart.
double ruler_step_ns(const View& view, double width, double min_px);

}  // namespace taut::gui
