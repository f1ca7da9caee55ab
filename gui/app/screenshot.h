// A picture of the window without a window: the same frame, drawn in memory. Needs no display.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

#include "gui/app/app.h"

namespace taut::gui {

struct ScreenshotOptions {
  std::filesystem::path png;
  int width = 1600, height = 900;
  Panel panel = Panel::timeline;  // brought to the front
  int64_t frame = 0;              // the picture is of this frame after loading; at least kSettledFrames
  std::optional<std::pair<int64_t, int64_t>> steps;  // half-open: shown in the timeline
};

/// Frames until docked windows, scroll bars and tabs have found their places.
inline constexpr int64_t kSettledFrames = 8;

/// Waits for the traces that `app` is loading, draws, writes the PNG. Throws taut::Error when a trace cannot be opened,
/// nothing can draw, or the file cannot be written.
void take_screenshot(App& app, const ScreenshotOptions& options);

}  // namespace taut::gui
