#include "runtime/data/sampler.h"

#include <algorithm>
#include <bit>

#include "runtime/data/mix.h"

namespace taut::data {

Permutation::Permutation(uint64_t size, uint64_t seed, uint64_t epoch) : size_(size) {
  const unsigned bits = std::bit_width(size - 1);
  half_bits_ = std::max(1u, (bits + 1) / 2);
  uint64_t key = mix(mix(seed) ^ epoch);
  for (uint64_t& round_key : keys_) round_key = key = mix(key);
}

uint64_t Permutation::operator()(uint64_t position) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t value = position;
  // At least a quarter of the network's domain lies below size_, so about four rounds of walking at the very most.
  do {
    uint64_t left = value >> half_bits_, right = value & mask;
    for (const uint64_t key : keys_) {
      const uint64_t next = left ^ (mix(right ^ key) & mask);
      left = right;
      right = next;
    }
    value = left << half_bits_ | right;
  } while (value >= size_);
  return value;
}

uint64_t SampleOrder::operator[](uint64_t position) const {
  const uint64_t in_epoch = position % samples;
  return shuffle ? Permutation(samples, seed, position / samples)(in_epoch) : in_epoch;
}

uint64_t first_position(const BatchShape& shape, int64_t step, int64_t microbatch, int64_t dp_rank) {
  const int64_t global_batch = shape.micro_batch * shape.microbatches * shape.data_parallel_size;
  return static_cast<uint64_t>(step * global_batch +
                               (microbatch * shape.data_parallel_size + dp_rank) * shape.micro_batch);
}

}  // namespace taut::data
