#include "runtime/data/slots.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "taut.h"

namespace taut::data {

/// One slot in the trainer's hands.
class Slots::Held {
 public:
  Held(std::shared_ptr<Slots> slots, int64_t worker, uint64_t n) : slots_(std::move(slots)), worker_(worker), n_(n) {}
  ~Held() { slots_->give_back(worker_, n_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  std::shared_ptr<Slots> slots_;
  int64_t worker_;
  uint64_t n_;
};

Slots::Slots(const RingShape& shape) : shape_(shape), ring_(shape), lanes_(static_cast<size_t>(shape.workers)) {
  for (Lane& lane : lanes_) {
    lane.taken_event = Descriptor(eventfd(0, EFD_CLOEXEC));
    if (lane.taken_event.fd >= 0) continue;
    throw Error(std::string("cannot start the data loader: ") + std::strerror(errno),
                "raise the limit of open files (ulimit -n), or lower data.num_workers");
  }
}

std::shared_ptr<const void> Slots::hold(int64_t worker, uint64_t n) {
  const std::scoped_lock lock(mutex_);
  Lane& lane = lanes_[static_cast<size_t>(worker)];
  lane.received = n + 1;
  if (shape_.slots == 0) lane.given_back = lane.received;
  tell(worker, lane);
  return shape_.slots == 0 ? nullptr : std::make_shared<const Held>(shared_from_this(), worker, n);
}

void Slots::give_back(int64_t worker, uint64_t n) {
  const std::scoped_lock lock(mutex_);
  Lane& lane = lanes_[static_cast<size_t>(worker)];
  const size_t at = n - lane.given_back;
  if (lane.late.size() <= at) lane.late.resize(at + 1);
  lane.late[at] = true;
  for (; !lane.late.empty() && lane.late.front(); lane.late.pop_front()) ++lane.given_back;
  tell(worker, lane);
}

void Slots::tell(int64_t worker, Lane& lane) {
  const auto kept = static_cast<uint64_t>(std::max<int64_t>(1, shape_.slots - shape_.prefetch_factor));
  const uint64_t taken = std::min(lane.received, lane.given_back + kept);
  if (taken == lane.told) return;
  lane.told = taken;
  raise(ring_.taken(worker), taken, lane.taken_event.fd);
}

int64_t Slots::ready() {
  int64_t ready = 0;
  for (int64_t worker = 0; worker < shape_.workers; ++worker) {
    ready += static_cast<int64_t>(ring_.produced(worker).value.load() - received(worker));
  }
  return ready;
}

bool Slots::is_full(int64_t worker, uint64_t n) {
  const std::scoped_lock lock(mutex_);
  return shape_.slots > 0 && n - lane(worker).given_back >= static_cast<uint64_t>(shape_.slots);
}

}  // namespace taut::data
