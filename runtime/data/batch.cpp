#include "runtime/data/batch.h"

#include "runtime/data/mix.h"

namespace taut::data {

uint64_t sample_hash(std::span<const int64_t> tokens) {
  uint64_t hash = mix(tokens.size());
  for (const int64_t token : tokens) {
    hash = (hash ^ static_cast<uint64_t>(token)) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 32;
  }
  return mix(hash);
}

}  // namespace taut::data
