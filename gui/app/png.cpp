#include "gui/app/png.h"

#include <zlib.h>

#include <string_view>

#include "runtime/config/whole_file.h"
#include "taut.h"

namespace taut::gui {
namespace {

void add_u32(std::vector<uint8_t>& out, uint32_t value) {
  for (const int shift : {24, 16, 8, 0}) out.push_back(static_cast<uint8_t>(value >> shift));
}

void add_chunk(std::vector<uint8_t>& out, std::string_view type, const std::vector<uint8_t>& data) {
  add_u32(out, static_cast<uint32_t>(data.size()));
  const size_t from = out.size();
  out.insert(out.end(), type.begin(), type.end());
  out.insert(out.end(), data.begin(), data.end());
  add_u32(out, static_cast<uint32_t>(crc32(0, out.data() + from, static_cast<uInt>(out.size() - from))));
}

// Each row as the difference to the one above (PNG filter 2), which suits a window's large flat areas.
std::vector<uint8_t> filtered(const Picture& picture) {
  const size_t stride = static_cast<size_t>(picture.width) * 3;
  std::vector<uint8_t> rows;
  rows.reserve((stride + 1) * static_cast<size_t>(picture.height));
  for (size_t y = 0; y < static_cast<size_t>(picture.height); ++y) {
    rows.push_back(2);
    const uint8_t* row = picture.pixels.data() + y * stride;
    for (size_t x = 0; x < stride; ++x) rows.push_back(static_cast<uint8_t>(row[x] - (y > 0 ? row[x - stride] : 0)));
  }
  return rows;
}

}  // namespace

std::vector<uint8_t> encode_png(const Picture& picture) {
  std::vector<uint8_t> header;
  add_u32(header, static_cast<uint32_t>(picture.width));
  add_u32(header, static_cast<uint32_t>(picture.height));
  header.insert(header.end(), {8, 2, 0, 0, 0});  // 8 bits, RGB, deflate, standard filters, not interlaced

  const std::vector<uint8_t> rows = filtered(picture);
  std::vector<uint8_t> packed(compressBound(rows.size()));
  uLongf size = packed.size();
  if (compress2(packed.data(), &size, rows.data(), rows.size(), 6) != Z_OK)
    throw Error("the picture could not be compressed");
  packed.resize(size);

  std::vector<uint8_t> out{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  add_chunk(out, "IHDR", header);
  add_chunk(out, "IDAT", packed);
  add_chunk(out, "IEND", {});
  return out;
}

void write_png(const Picture& picture, const std::filesystem::path& path) {
  const std::vector<uint8_t> bytes = encode_png(picture);
  config::write_file(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace taut::gui
