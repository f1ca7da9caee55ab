// Roboto Medium (Apache License 2.0), which comes with Dear ImGui's sources; the build turns the file into these bytes,
// so that the window looks the same on a machine without fonts.
#pragma once

#include <cstddef>

namespace taut::gui {

extern const unsigned char kFontData[];
extern const size_t kFontBytes;

}  // namespace taut::gui
