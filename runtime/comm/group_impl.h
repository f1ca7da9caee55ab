// What stands behind comm::Group; included by this folder's .cpp files only.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "runtime/comm/process_group.h"
#include "runtime/comm/roll_call.h"

namespace taut::comm {

struct Operation;

/// Waits, on a thread of its own, for operations that complete in the order in which they were issued: the sends to one
/// peer, the receives from one peer, or (NCCL) the operations of one group. It ends their trace ranges at the moment
/// they really complete.
class CompletionQueue {
 public:
  /// `device` is the rank's own.
  explicit CompletionQueue(at::Device device);
  /// Waits for what was issued.
  ~CompletionQueue();
  void add(std::shared_ptr<Operation> operation);

 private:
  void run();

  const at::Device device_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::shared_ptr<Operation>> queue_;
  bool closing_ = false;
  std::thread thread_;
};

/// Keeps the order of a group's operations while some of them wait for their check: an operation is issued once it has
/// passed and all before it have been issued or dropped. Thread-safe.
class IssueLine {
 public:
  struct Place {
    std::function<void()> issue;  // must not block on a peer
    bool decided = false;
  };
  /// Issues at once when nobody waits in front.
  void pass(std::function<void()> issue);
  std::shared_ptr<Place> hold(std::function<void()> issue);
  /// The operation at `place` has passed (or, not `passed`, is dropped).
  void decide(const std::shared_ptr<Place>& place, bool passed);

 private:
  std::mutex mutex_;
  std::deque<std::shared_ptr<Place>> waiting_;
};

struct GroupImpl {
  ~GroupImpl();

  c10::intrusive_ptr<c10d::Backend> backend;  // null in a group of one and in a dry run
  // NCCL runs the messages of a pair of ranks in the order in which they were issued, whatever their direction: a
  // receive posted ahead would hold up the send behind it, and two that send to each other first would both wait.
  // Messages to lower members therefore have a backend of their own.
  c10::intrusive_ptr<c10d::Backend> backward_backend;
  c10::intrusive_ptr<c10d::Backend> check_backend;  // Gloo: carries fingerprints only
  EmulatedLink* link = nullptr;
  at::Device device = at::kCPU;
  bool cuda = false;          // operations run on the device (NCCL)
  bool staged = false;        // operations run on copies in host memory
  bool dry = false;           // operations do nothing
  bool check_always = false;  // beyond the first operations
  double timeout_s = 0;
  std::shared_ptr<RollCall> roll_call;  // shared by the rank's groups
  Progress* progress = nullptr;
  int64_t next_seq = 0;
  std::map<std::pair<bool, int>, int64_t> next_message;  // (sending, peer) -> ordinal of the next message
  IssueLine line;
  std::mutex queues_mutex;
  std::map<std::pair<int, int>, std::unique_ptr<CompletionQueue>> queues;  // (kind, peer)

  c10d::Backend& backend_for_message(int sender, int receiver) {
    return receiver < sender && backward_backend ? *backward_backend : *backend;
  }

  CompletionQueue& queue(int kind, int peer) {
    std::lock_guard lock(queues_mutex);
    auto& slot = queues[{kind, peer}];
    if (!slot) slot = std::make_unique<CompletionQueue>(device);
    return *slot;
  }
};

}  // namespace taut::comm
