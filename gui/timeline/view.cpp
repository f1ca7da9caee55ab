#include "gui/timeline/view.h"

#include <algorithm>
#include <cmath>

namespace taut::gui {
namespace {

// Keeps the view within reach of the trace: never longer than twice the trace, never off it.
void confine(View& view) {
  const double longest = view.whole.length() * 2;
  double length = std::clamp(view.shown.length(), std::min(kShortestView_ns, longest), longest);
  if (!std::isfinite(length)) length = view.whole.length();
  double middle = (view.shown.begin + view.shown.end) / 2;
  if (!std::isfinite(middle)) middle = (view.whole.begin + view.whole.end) / 2;
  double begin = middle - length / 2;
  begin = std::clamp(begin, view.whole.begin - 0.9 * length, view.whole.end - 0.1 * length);
  view.shown = {begin, begin + length};
}

}  // namespace

View make_view(double begin_ns, double end_ns) {
  View view;
  view.whole = {begin_ns, end_ns > begin_ns ? end_ns : begin_ns + 1e6};
  fit(view);
  return view;
}

void zoom(View& view, double anchor, double factor) {
  if (!(factor > 0)) return;
  // The limits apply to the length before the anchor does its work, or zooming at a limit would drift.
  const double longest = view.whole.length() * 2;
  const double length = std::clamp(view.shown.length() * factor, std::min(kShortestView_ns, longest), longest);
  const double fixed = view.shown.begin + anchor * view.shown.length();
  view.shown.begin = fixed - anchor * length;
  view.shown.end = view.shown.begin + length;
  confine(view);
}

void pan(View& view, double share) {
  const double distance = share * view.shown.length();
  view.shown.begin += distance;
  view.shown.end += distance;
  confine(view);
}

void fit(View& view) {
  const double margin = view.whole.length() * 0.01;
  view.shown = {view.whole.begin - margin, view.whole.end + margin};
}

void frame(View& view, double begin_ns, double end_ns, double margin) {
  if (end_ns < begin_ns) std::swap(begin_ns, end_ns);
  const double length = std::max(end_ns - begin_ns, kShortestView_ns / 2);
  view.shown = {begin_ns - margin * length, begin_ns + length * (1 + margin)};
  confine(view);
}

double ruler_step_ns(const View& view, double width, double min_px) {
  const double least = view.shown.length() / std::max(width, 1.0) * min_px;
  const double power = std::pow(10.0, std::floor(std::log10(std::max(least, 1e-3))));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (power * factor >= least) return power * factor;
  }
  return power * 10;
}

}  // namespace taut::gui
