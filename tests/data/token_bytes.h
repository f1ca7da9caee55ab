// Token files written byte by byte, from the format's description and not by the code under test.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace taut::data {

/// Little-endian numbers, one after the other.
template <class Number>
std::string packed(const std::vector<Number>& numbers) {
  std::string bytes;
  for (const Number number : numbers) {
    uint64_t bits = 0;
    std::memcpy(&bits, &number, sizeof number);
    for (size_t i = 0; i < sizeof number; ++i) bytes += static_cast<char>(bits >> (8 * i) & 0xff);
  }
  return bytes;
}

inline std::string index_bytes(uint8_t code, const std::vector<int32_t>& lengths, const std::vector<int64_t>& pointers,
                               const std::vector<int64_t>& documents) {
  return std::string("MMIDIDX\0\0", 9) + packed<uint64_t>({1}) + packed<uint8_t>({code}) +
         packed<uint64_t>({lengths.size(), documents.size()}) + packed(lengths) + packed(pointers) + packed(documents);
}

}  // namespace taut::data
