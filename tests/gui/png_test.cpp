#include "gui/app/png.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>

#include "taut.h"
#include "tests/gui/scratch.h"

namespace taut::gui {
namespace {

uint32_t u32(const std::vector<uint8_t>& bytes, size_t at) {
  return uint32_t{bytes[at]} << 24 | uint32_t{bytes[at + 1]} << 16 | uint32_t{bytes[at + 2]} << 8 | bytes[at + 3];
}

TEST(Png, HoldsThePixelsThatWerePutIn) {
  Picture picture{.width = 5, .height = 3, .pixels = {}};
  for (int i = 0; i < 5 * 3 * 3; ++i) picture.pixels.push_back(static_cast<uint8_t>(i * 37));
  const auto png = encode_png(picture);
  ASSERT_EQ(std::string(png.begin() + 1, png.begin() + 4), "PNG");
  EXPECT_EQ(u32(png, 16), 5U);
  EXPECT_EQ(u32(png, 20), 3U);
  // Decode by the PNG specification: chunk by chunk, checksums, inflate, undo filter 2.
  std::vector<uint8_t> packed;
  for (size_t at = 8; at < png.size();) {
    const uint32_t length = u32(png, at);
    EXPECT_EQ(u32(png, at + 8 + length), crc32(0, png.data() + at + 4, length + 4));
    if (std::string(png.begin() + static_cast<long>(at) + 4, png.begin() + static_cast<long>(at) + 8) == "IDAT") {
      packed.assign(png.begin() + static_cast<long>(at) + 8, png.begin() + static_cast<long>(at + 8 + length));
    }
    at += 12 + length;
  }
  std::vector<uint8_t> rows(3 * 16);
  uLongf size = rows.size();
  ASSERT_EQ(uncompress(rows.data(), &size, packed.data(), packed.size()), Z_OK);
  ASSERT_EQ(size, rows.size());
  std::vector<uint8_t> pixels;
  for (size_t y = 0; y < 3; ++y) {
    ASSERT_EQ(rows[y * 16], 2);
    for (size_t x = 0; x < 15; ++x)
      pixels.push_back(static_cast<uint8_t>(rows[y * 16 + 1 + x] + (y ? pixels[(y - 1) * 15 + x] : 0)));
  }
  EXPECT_EQ(pixels, picture.pixels);
}

TEST(Png, AFolderThatDoesNotExistIsAnError) {
  const test::Scratch scratch;
  EXPECT_THROW(write_png({1, 1, {0, 0, 0}}, scratch / "no/such/folder.png"), Error);
}

}  // namespace
}  // namespace taut::gui
