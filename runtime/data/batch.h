// One microbatch of token ids, as the loader hands it to the trainer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace taut::data {

/// A view: `tokens` lies in the loader's memory (a slot of the shared ring, or its own buffer) and is valid until the
/// next call of Loader::next() or the loader's end. Wrap it without a copy, or clone what must live longer.
struct Batch {
  int64_t step = 0;
  int32_t microbatch = 0;           // 0 … gradient_accumulation_steps - 1
  int32_t worker = -1;              // who made it; -1 = inline
  int64_t rows = 0, columns = 0;    // train_micro_batch_size_per_gpu, seq_length + 1
  const int64_t* tokens = nullptr;  // [rows, columns], row-major; inputs are columns 0 … seq-1, targets 1 … seq
  uint64_t sample_hash = 0;         // of `tokens`

  std::span<const int64_t> span() const { return {tokens, static_cast<size_t>(rows * columns)}; }
  int64_t bytes() const { return rows * columns * static_cast<int64_t>(sizeof(int64_t)); }
};

/// 64-bit hash of token ids, the same on every platform: equal samples have equal hashes, and different ones differ
/// but for a chance of 2^-64. O(n), about a nanosecond a token.
uint64_t sample_hash(std::span<const int64_t> tokens);

}  // namespace taut::data
