// Which samples make a batch, and in which order: a permutation per epoch that is computed, not stored.
//
// The order is a keyed Feistel network over the smallest even number of bits that holds the sample count; a value
// beyond the count is encrypted again until it falls inside ("cycle walking": J. Black, P. Rogaway, "Ciphers with
// Arbitrary Finite Domains", CT-RSA 2002, section 3), which keeps it a bijection. Only 64-bit integer arithmetic is
// used, so every platform, rank and worker computes the same order in O(1) memory and O(1) expected time per sample.
#pragma once

#include <array>
#include <cstdint>

namespace taut::data {

/// A bijection of 0 … size-1 that depends on (seed, epoch) alone.
class Permutation {
 public:
  /// `size` is 1 … 2^62.
  Permutation(uint64_t size, uint64_t seed, uint64_t epoch);

  /// The sample at `position` (< size) of this epoch's order.
  uint64_t operator()(uint64_t position) const;

 private:
  static constexpr int kRounds = 6;
  uint64_t size_;
  unsigned half_bits_;
  std::array<uint64_t, kRounds> keys_;
};

/// The order of samples over the whole run: position p is sample permutation(epoch = p / samples)(p % samples), or
/// p % samples without shuffling.
struct SampleOrder {
  uint64_t samples = 1;
  uint64_t seed = 0;
  bool shuffle = true;

  uint64_t operator[](uint64_t position) const;
};

/// Sizes of a step's global batch.
struct BatchShape {
  int64_t micro_batch = 1;   // rows of one microbatch
  int64_t microbatches = 1;  // gradient accumulation steps
  int64_t data_parallel_size = 1;
};

/// Position in the order of the first row of microbatch `microbatch` of data-parallel rank `dp_rank` in `step`; its
/// rows follow it. Every global batch holds the same samples whatever the data-parallel size is.
uint64_t first_position(const BatchShape& shape, int64_t step, int64_t microbatch, int64_t dp_rank);

}  // namespace taut::data
