#include "runtime/comm/emulated_link.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>

namespace taut::comm {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

double wire_bytes(annotate::CollectiveOp op, int ranks, int64_t bytes) {
  using annotate::CollectiveOp;
  const double share = ranks > 0 ? double(ranks - 1) / ranks : 0.0;
  switch (op) {
    case CollectiveOp::all_reduce:
      return 2 * share * double(bytes);
    case CollectiveOp::all_gather:
    case CollectiveOp::reduce_scatter:
    case CollectiveOp::all_to_all:
      return share * double(bytes);
    case CollectiveOp::broadcast:
    case CollectiveOp::send:
      return double(bytes);
    case CollectiveOp::recv:
    case CollectiveOp::barrier:
      return 0.0;
  }
  return 0.0;
}

EmulatedLink::EmulatedLink(const config::EmulatedLink& settings)
    : enabled_(settings.gbit_per_s > 0 || settings.latency_us > 0),
      seconds_per_byte_(settings.gbit_per_s > 0 ? 8.0 / (settings.gbit_per_s * 1e9) : 0.0),
      latency_s_(settings.latency_us * 1e-6) {
  if (enabled_) thread_ = std::thread([this] { run(); });
}

EmulatedLink::~EmulatedLink() {
  if (!enabled_) return;
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  arrived_.notify_one();
  thread_.join();
}

double EmulatedLink::transfer_seconds(double bytes) const {
  return latency_s_ + bytes * seconds_per_byte_;
}

void EmulatedLink::submit(double bytes, std::function<void()> issue) {
  if (!enabled_) return issue();
  {
    std::lock_guard lock(mutex_);
    queue_.push_back({now_seconds(), transfer_seconds(bytes), std::move(issue)});
  }
  arrived_.notify_one();
}

void EmulatedLink::run() {
  prctl(PR_SET_TIMERSLACK, 1UL);  // nanoseconds: the default of 50 µs would lengthen every short transfer
  double free_at = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    arrived_.wait(lock, [this] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Transfer transfer = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    free_at = std::max(free_at, transfer.submitted) + transfer.seconds;
    std::this_thread::sleep_until(std::chrono::steady_clock::time_point(
        std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(free_at))));
    transfer.issue();
    lock.lock();
  }
}

}  // namespace taut::comm
