// How a worker's finished batches reach the trainer: counters in shared memory that both sides see, event descriptors
// to sleep on, and the ring of slots.
//
// Each worker has two counters that only grow: `produced` (batches finished, written by the worker) and `taken`
// (written by the trainer: batches received, but held back while the trainer keeps many of them, see slots.h). The
// worker may start its n-th batch when n < taken + prefetch_factor, and writes it to slot n % slots.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/data/shared_memory.h"

namespace taut::data {

/// A number that one process raises and another waits for. Lies in shared memory.
struct alignas(64) Counter {
  std::atomic<uint64_t> value;
  std::atomic<uint32_t> waiting;  // the other side sleeps, or is about to
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(Counter) == 64);

/// Sets the counter and rings `event_fd` (an eventfd) if the other side sleeps: no system call when it does not.
void raise(Counter& counter, uint64_t value, int event_fd);

/// Sleeps until counter.value > `bound` (true), or until one of `peers` has something to say, be it that it is gone
/// (false). `peers` may be changed by poll(2).
bool wait_above(Counter& counter, uint64_t bound, int event_fd, std::span<pollfd> peers);

struct RingShape {
  int64_t workers = 0;
  int64_t prefetch_factor = 0;
  int64_t tokens_per_batch = 0;
  int64_t slots = 0;  // of each worker, more than prefetch_factor; 0 = counters only, batches go through pipes
};

/// Bytes of the ring's shared memory. Throws taut::Error if no machine has as many.
size_t ring_bytes(const RingShape& shape);

/// The shared memory of one loader. The trainer makes it, workers map it.
class Ring {
 public:
  /// Throws taut::Error with the size if there is not enough memory.
  explicit Ring(const RingShape& shape);
  Ring(const RingShape& shape, int fd);

  Counter& produced(int64_t worker) { return counters()[2 * worker]; }
  Counter& taken(int64_t worker) { return counters()[2 * worker + 1]; }
  /// Tokens of the worker's n-th batch.
  int64_t* tokens(int64_t worker, uint64_t n);
  /// Sample hash of the worker's n-th batch.
  uint64_t& hash(int64_t worker, uint64_t n);
  int fd() const { return memory_->fd(); }
  /// All of the mapping.
  std::span<std::byte> memory() { return {reinterpret_cast<std::byte*>(memory_->data()), memory_->bytes()}; }

 private:
  Counter* counters() { return reinterpret_cast<Counter*>(memory_->data()); }
  char* slot(int64_t worker, uint64_t n);

  RingShape shape_;
  std::unique_ptr<SharedMemory> memory_;
};

}  // namespace taut::data
