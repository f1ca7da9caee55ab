// The integer hash behind the sample order, the generated tokens and the sample hash.
#pragma once

#include <cstdint>

namespace taut::data {

/// A bijection of 64-bit integers in which every input bit changes half of the output bits: the output function of
/// SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014, fig. 16).
constexpr uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace taut::data
