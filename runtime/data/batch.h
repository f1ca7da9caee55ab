// One microbatch of token ids, as the loader hands it to the trainer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace taut::data {

/// A view: `tokens` lies in the loader's memory (a slot of the shared ring, or a buffer of the loader's) and stays as
/// it is while `slot`, or a copy of it, lives; afterwards the memory is written again. So a batch can be wrapped as a
/// tensor without a copy whose deleter holds `slot`. Slots may be given back in any order, by any thread, and after the
/// loader's end. How many may be out at once: Loader::next().
struct Batch {
  int64_t step = 0;
  int32_t microbatch = 0;           // 0 … gradient_accumulation_steps - 1
  int32_t worker = -1;              // who made it; -1 = inline
  int64_t rows = 0, columns = 0;    // train_micro_batch_size_per_gpu, seq_length + 1
  const int64_t* tokens = nullptr;  // [rows, columns], row-major; inputs are columns 0 … seq-1, targets 1 … seq
  uint64_t sample_hash = 0;         // of `tokens`
  std::shared_ptr<const void> slot;

  std::span<const int64_t> span() const { return {tokens, static_cast<size_t>(rows * columns)}; }
  int64_t bytes() const { return rows * columns * static_cast<int64_t>(sizeof(int64_t)); }

  /// Gives the slot back (unless a copy of this batch still holds it); `tokens` is then null.
  void release() {
    tokens = nullptr;
    slot.reset();
  }
};

/// 64-bit hash of token ids, the same on every platform: equal samples have equal hashes, and different ones differ
/// but for a chance of 2^-64. O(n), about a nanosecond a token.
uint64_t sample_hash(std::span<const int64_t> tokens);

}  // namespace taut::data
