// The emulated slower network (`communication.emulated_link`): each transfer of a rank waits latency + bytes/bandwidth
// before it really happens. One queue per rank: transfers go one after another, as on one network card. It waits by
// sleeping, so the waiting costs no core. Off (gbit_per_s = latency_us = 0), `submit` issues at once.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "runtime/config/config.h"
#include "tracer/annotate/annotate.h"

namespace taut::comm {

/// Bytes that one rank of a ring of `ranks` sends for an operation on `bytes` (the full tensor): all-reduce
/// 2(n−1)/n · S, all-gather, reduce-scatter and all-to-all (n−1)/n · S, broadcast and send S, recv and barrier 0
/// (the sender's delay is the receiver's, too).
double wire_bytes(annotate::CollectiveOp op, int ranks, int64_t bytes);

class EmulatedLink {
 public:
  explicit EmulatedLink(const config::EmulatedLink& settings);
  /// Waits until every submitted transfer has been issued.
  ~EmulatedLink();
  EmulatedLink(const EmulatedLink&) = delete;
  EmulatedLink& operator=(const EmulatedLink&) = delete;

  bool enabled() const { return enabled_; }

  /// How long `bytes` occupy the link, in seconds.
  double transfer_seconds(double bytes) const;

  /// Calls `issue` once the link has been free for the transfer's time: on this object's thread when the emulation is
  /// on, else before returning. `issue` must neither block on a peer nor throw. Thread-safe.
  void submit(double bytes, std::function<void()> issue);

 private:
  struct Transfer {
    double submitted = 0, seconds = 0;
    std::function<void()> issue;
  };
  void run();

  const bool enabled_;
  const double seconds_per_byte_, latency_s_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Transfer> queue_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace taut::comm
