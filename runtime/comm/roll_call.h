// Who is where when an operation does not end. A rank keeps the last operation that it issued in each of its groups;
// nobody tells it to anybody until an operation fails. Then the rank that notices asks through the rendezvous store,
// and a thread on every rank, which looks for questions about once a second, answers with its positions. So training
// costs no store traffic but that look, and the answers are fresh.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/fingerprint.h"

namespace taut::comm {

/// An operation of a group, as its members number them.
struct Place {
  annotate::CollectiveOp op = annotate::CollectiveOp::barrier;
  int64_t seq = -1;  // -1 = none yet
};

/// The last operations that this rank issued in one group. Written by the issuing thread, read by any.
class Progress {
 public:
  Progress(std::string group, std::vector<int> ranks) : group_(std::move(group)), ranks_(std::move(ranks)) {}

  void set_collective(Place at) { collective_.store(pack(at), std::memory_order_relaxed); }
  void set_message(Place at) { message_.store(pack(at), std::memory_order_relaxed); }
  Place collective() const { return unpack(collective_.load(std::memory_order_relaxed)); }
  Place message() const { return unpack(message_.load(std::memory_order_relaxed)); }
  const std::string& group() const { return group_; }
  const std::vector<int>& ranks() const { return ranks_; }

 private:
  static int64_t pack(Place at) { return at.seq * 16 + static_cast<int64_t>(at.op); }
  static Place unpack(int64_t packed) {
    if (packed < 0) return {};
    return {static_cast<annotate::CollectiveOp>(packed % 16), packed / 16};
  }
  std::string group_;
  std::vector<int> ranks_;  // global
  std::atomic<int64_t> collective_{-1}, message_{-1};
};

/// One rank's part in roll calls. Thread-safe.
class RollCall {
 public:
  RollCall(c10::intrusive_ptr<c10d::Store> store, int rank, double timeout_s);
  /// Leaves word that this rank has ended.
  ~RollCall();
  RollCall(const RollCall&) = delete;
  RollCall& operator=(const RollCall&) = delete;

  /// A group to answer for; lives as long as this object.
  Progress& add(std::string group, std::vector<int> ranks);

  /// What this rank blocks on, for the answers; between begin_wait and end_wait of one thread. A wait that
  /// fails is never ended.
  void begin_wait(const std::string& group, Place at);
  void end_wait();

  /// Asks the members of `progress` (only `peer` when it is not negative) where they are and says who is missing at
  /// operation `at`: "rank 3 is at all_reduce 16 on dp0, waits in recv 2 on pp1; rank 2 has ended". Takes at most a few
  /// seconds. Never throws.
  std::string missing_at(const Progress& progress, Place at, int peer);

  /// Leaves word that this rank gives up, for those who wait for it. Never throws.
  void give_up(const std::string& error);

 private:
  void run();
  std::string answer() const;
  void publish(const std::string& text);
  std::string key_of(int rank) const;
  std::string ask(const Progress& progress, Place at, int peer);

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const double period_s_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Progress> groups_;  // a deque: its elements stay where they are
  std::string waits_in_, last_words_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace taut::comm
