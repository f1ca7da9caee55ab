// The trainer's side of the ring: which batches it received, and which of their slots it has given back.
//
// A worker has prefetch_factor + kept slots. It may start batch n when n < taken + prefetch_factor, where the trainer
// sets taken = min(received, given back in order + kept): ahead by prefetch_factor as long as the trainer keeps no more
// than `kept` batches of that worker, and never into a slot that the trainer still looks at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/data/descriptor.h"
#include "runtime/data/handover.h"

namespace taut::data {

/// Made with std::make_shared: what hold() returns keeps it alive.
/// Thread safety: hold() and the counts belong to one thread; slots may be given back by any.
class Slots : public std::enable_shared_from_this<Slots> {
 public:
  /// Throws taut::Error if there is not enough memory for the ring.
  explicit Slots(const RingShape& shape);

  Ring& ring() { return ring_; }
  const RingShape& shape() const { return shape_; }
  int taken_event(int64_t worker) const { return lane(worker).taken_event.fd; }

  /// Notes that the trainer received batch n of `worker` (counting from 0). The slot is given back when the last copy
  /// of the result is gone. With pipes there is no slot, and the result is null.
  std::shared_ptr<const void> hold(int64_t worker, uint64_t n);

  uint64_t received(int64_t worker) const { return lane(worker).received; }
  /// Batches finished and not received, of all workers.
  int64_t ready();
  /// Whether batch n of `worker` cannot be made before the trainer gives an older one back.
  bool is_full(int64_t worker, uint64_t n);

 private:
  struct Lane {
    Descriptor taken_event;  // eventfd
    uint64_t received = 0;
    uint64_t given_back = 0;  // all batches below this
    uint64_t told = 0;        // what the worker knows as `taken`
    std::deque<bool> late;    // those from `given_back` on: already given back, though an older one is not
  };
  class Held;

  const Lane& lane(int64_t worker) const { return lanes_[static_cast<size_t>(worker)]; }
  void give_back(int64_t worker, uint64_t n);
  void tell(int64_t worker, Lane& lane);

  RingShape shape_;
  Ring ring_;
  std::mutex mutex_;
  std::vector<Lane> lanes_;
};

}  // namespace taut::data
