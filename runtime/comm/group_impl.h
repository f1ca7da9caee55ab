// What stands behind comm::Group; included by this folder's .cpp files only.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "runtime/comm/process_group.h"

namespace taut::comm {

struct Operation;

/// Waits, on a thread of its own, for operations that complete in the order in which they were issued: the sends to one
/// peer, the receives from one peer, or (NCCL) the operations of one group. It ends their trace ranges at the moment
/// they really complete.
class CompletionQueue {
 public:
  CompletionQueue();
  /// Waits for what was issued.
  ~CompletionQueue();
  void add(std::shared_ptr<Operation> operation);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::shared_ptr<Operation>> queue_;
  bool closing_ = false;
  std::thread thread_;
};

struct GroupImpl {
  c10::intrusive_ptr<c10d::Backend> backend;  // null in a group of one
  // NCCL runs the messages of a pair of ranks in the order in which they were issued, whatever their direction: a
  // receive posted ahead would hold up the send behind it. Messages to lower members therefore have a backend of their
  // own.
  c10::intrusive_ptr<c10d::Backend> backward_backend;
  EmulatedLink* link = nullptr;
  bool cuda = false;
  int64_t next_seq = 0;
  std::map<std::pair<bool, int>, int64_t> next_message;  // (sending, peer) -> ordinal of the next message
  std::mutex queues_mutex;
  std::map<std::pair<int, int>, std::unique_ptr<CompletionQueue>> queues;  // (kind, peer)

  c10d::Backend& backend_for_message(int sender, int receiver) {
    return receiver < sender && backward_backend ? *backward_backend : *backend;
  }

  CompletionQueue& queue(int kind, int peer) {
    std::lock_guard lock(queues_mutex);
    auto& slot = queues[{kind, peer}];
    if (!slot) slot = std::make_unique<CompletionQueue>();
    return *slot;
  }
};

}  // namespace taut::comm
