#include "gui/app/screenshot.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "gui/app/png.h"
#include "gui/app/window.h"
#include "taut.h"

namespace taut::gui {
namespace {

void wait_until_loaded(App& app) {
  for (update(app); is_busy(app); update(app)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  for (const Side& side : app.sides) {
    if (!side.failure.what.empty()) throw Error(side.failure.what, side.failure.hint);
  }
}

}  // namespace

void take_screenshot(App& app, const ScreenshotOptions& options) {
  wait_until_loaded(app);
  Window window(Where::memory, options.width, options.height, app);
  if (options.steps) show_steps(app, options.steps->first, options.steps->second);
  app.bring_to_front.reset();
  const int64_t frames = std::max(options.frame, kSettledFrames);
  for (int64_t i = 0; i < frames; ++i) {
    if (i == 0) app.bring_to_front = options.panel;
    window.draw(app);
  }
  write_png(window.picture(), options.png);
}

}  // namespace taut::gui
