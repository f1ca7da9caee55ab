#include "gui/timeline/ruler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "gui/app/theme.h"

namespace taut::gui {
namespace {

constexpr double kMarkDistance = 110;  // pixels between marks, at least

// Calls `mark(time, x)` for every round time in sight; x counts from the left edge.
template <class Mark>
void for_each_mark(const View& view, float width, double step, Mark mark) {
  const double first = std::floor(view.shown.begin / step) * step;
  const int count = static_cast<int>(width / kMarkDistance) + 2;
  for (int i = 0; i < count; ++i) {
    const double time = first + i * step;
    mark(time, static_cast<float>(to_x(view, time, width)));
  }
}

}  // namespace

std::string ruler_text(double time_ns, double step_ns) {
  struct Unit {
    double ns;
    const char* name;
  };
  constexpr std::array<Unit, 4> units{{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}, {1, "ns"}}};
  if (time_ns == 0) return "0";
  const Unit* unit = &units.back();
  for (const Unit& candidate : units) {
    if (std::abs(time_ns) >= candidate.ns && step_ns >= candidate.ns * 1e-3) {
      unit = &candidate;
      break;
    }
  }
  const int decimals = std::clamp(static_cast<int>(std::ceil(-std::log10(step_ns / unit->ns) - 1e-9)), 0, 3);
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f %s", decimals, time_ns / unit->ns, unit->name);
  return text.data();
}

void draw_ruler(ImDrawList* draw, ImVec2 origin, float width, const View& view) {
  const ImVec2 end{origin.x + width, origin.y + kRulerHeight};
  const double step = ruler_step_ns(view, width, kMarkDistance);
  draw->AddRectFilled(origin, end, kGround);
  draw->PushClipRect(origin, end, true);
  for_each_mark(view, width, step, [&](double time, float x) {
    draw->AddLine({origin.x + x, end.y - 6}, {origin.x + x, end.y}, kTextFaint);
    draw->AddText({origin.x + x + 4, origin.y + 3}, kTextDim, ruler_text(time, step).c_str());
  });
  draw->PopClipRect();
}

void draw_grid(ImDrawList* draw, ImVec2 origin, ImVec2 size, const View& view) {
  for_each_mark(view, size.x, ruler_step_ns(view, size.x, kMarkDistance), [&](double, float x) {
    if (x >= 0) draw->AddLine({origin.x + x, origin.y}, {origin.x + x, origin.y + size.y}, kGrid);
  });
}

}  // namespace taut::gui
