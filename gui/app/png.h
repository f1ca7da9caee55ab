// Writes a picture. PNG by hand on zlib: one filter, one chunk; pictures of the window compress well without more.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace taut::gui {

/// 8-bit RGB, rows from top to bottom, `pixels.size() == width × height × 3`.
struct Picture {
  int width = 0, height = 0;
  std::vector<uint8_t> pixels;
};

/// The bytes of a PNG file.
std::vector<uint8_t> encode_png(const Picture& picture);

/// Writes the file whole or not at all. Throws taut::Error with the path and the reason.
void write_png(const Picture& picture, const std::filesystem::path& path);

}  // namespace taut::gui
