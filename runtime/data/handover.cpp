#include "runtime/data/handover.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "taut.h"

namespace taut::data {
namespace {

constexpr size_t kSlotHeaderBytes = 64;  // the sample hash, and tokens on a cache line of their own

size_t slot_bytes(const RingShape& shape) {
  const size_t tokens = static_cast<size_t>(shape.tokens_per_batch) * sizeof(int64_t);
  return kSlotHeaderBytes + (tokens + 63) / 64 * 64;
}

}  // namespace

size_t ring_bytes(const RingShape& shape) {
  const auto workers = static_cast<size_t>(shape.workers);
  const size_t counters = workers * 2 * sizeof(Counter);
  size_t slots = 0, total = 0;
  if (__builtin_mul_overflow(workers * static_cast<size_t>(shape.slots), slot_bytes(shape), &slots) ||
      __builtin_add_overflow(slots, counters, &total) || total > size_t{1} << 62) {
    throw Error("the loader's ring of " + std::to_string(shape.workers) + " workers × " + std::to_string(shape.slots) +
                    " batches is larger than any memory",
                "lower data.num_workers, data.prefetch_factor or train_micro_batch_size_per_gpu");
  }
  return counters + slots;
}

void raise(Counter& counter, uint64_t value, int event_fd) {
  // Sequentially consistent on both sides: either this thread sees `waiting`, or the waiter sees the value.
  counter.value.store(value);
  if (counter.waiting.load() == 0) return;
  const uint64_t one = 1;
  while (write(event_fd, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

bool wait_above(Counter& counter, uint64_t bound, int event_fd, std::span<pollfd> peers) {
  if (counter.value.load() > bound) return true;
  std::vector<pollfd> polled(peers.begin(), peers.end());
  polled.push_back({event_fd, POLLIN, 0});
  bool peer_spoke = false;
  counter.waiting.store(1);
  while (counter.value.load() <= bound && !peer_spoke) {
    if (poll(polled.data(), polled.size(), -1) < 0) continue;  // EINTR
    if (polled.back().revents != 0) {
      uint64_t count;
      while (read(event_fd, &count, sizeof count) < 0 && errno == EINTR) {
      }
    }
    peer_spoke = std::any_of(polled.begin(), polled.end() - 1, [](const pollfd& peer) { return peer.revents != 0; });
  }
  counter.waiting.store(0);
  std::copy(polled.begin(), polled.end() - 1, peers.begin());
  return counter.value.load() > bound;
}

Ring::Ring(const RingShape& shape)
    : shape_(shape),
      memory_(std::make_unique<SharedMemory>(ring_bytes(shape), "the loader's ring of " +
                                                                    std::to_string(shape.workers) + " workers × " +
                                                                    std::to_string(shape.slots) + " batches")) {}

Ring::Ring(const RingShape& shape, int fd)
    : shape_(shape), memory_(std::make_unique<SharedMemory>(fd, SharedMemory::Access::read_write)) {
  if (memory_->bytes() != ring_bytes(shape)) throw Error("the loader's ring has the wrong size");
}

char* Ring::slot(int64_t worker, uint64_t n) {
  const auto per_worker = static_cast<uint64_t>(shape_.slots);
  const uint64_t index = static_cast<uint64_t>(worker) * per_worker + n % per_worker;
  return memory_->data() + static_cast<size_t>(shape_.workers) * 2 * sizeof(Counter) + index * slot_bytes(shape_);
}

int64_t* Ring::tokens(int64_t worker, uint64_t n) {
  return reinterpret_cast<int64_t*>(slot(worker, n) + kSlotHeaderBytes);
}

uint64_t& Ring::hash(int64_t worker, uint64_t n) {
  return *reinterpret_cast<uint64_t*>(slot(worker, n));
}

}  // namespace taut::data
