// One operation under way, from issue to completion: its check, its place in the emulated link's queue, its trace
// range, its failure. Included by this folder's .cpp files only; collectives.cpp says what each operation is.
#pragma once

#include <torch/types.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/collectives.h"
#include "runtime/comm/fingerprint.h"
#include "runtime/comm/group_impl.h"

namespace taut::comm {

/// The first operations of each group, and the first messages to and from each peer, are always checked.
inline constexpr int64_t kAlwaysChecked = 64;

/// State shared by the issuer, the thread that completes the operation, and those who wait.
struct Operation {
  annotate::Collective info{};
  std::string group_name;
  double timeout_s = 0;
  std::shared_ptr<RollCall> roll_call;
  const Progress* progress = nullptr;
  bool cuda = false;
  nvtxRangeId_t range = 0;
  std::vector<at::Tensor> tensors;                         // kept alive until completion
  std::vector<std::pair<at::Tensor, at::Tensor>> results;  // tensor <- its host copy, copied by who waits
  c10::intrusive_ptr<c10d::Work> work;
  /// Runs on the completing thread before `work`, which it may set: a message's header. Throws taut::Error on a
  /// mismatch.
  std::function<void()> before_work;

  std::mutex mutex;
  std::condition_variable changed;
  bool issued = false, done = false, copied = false;
  std::string failure;   // the backend's words
  std::string mismatch;  // complete sentence

  void set_issued();
  void complete(const std::string& what = {});
  void complete_mismatch(const std::string& what);
  /// Throws taut::Error when the operation failed.
  void wait();

 private:
  [[noreturn]] void raise();
  void finish(std::string Operation::*field, const std::string& what);
};

using Issue = std::function<c10::intrusive_ptr<c10d::Work>(c10d::Backend&)>;

/// What `start` needs to know. `bytes` = the full tensor (see annotate::Collective).
struct Call {
  annotate::CollectiveOp op;
  int64_t bytes = 0;
  annotate::DType dtype = annotate::DType::uint8;
  ContentTag tag;
  int peer = -1;  // member
  bool is_async = false;
  std::vector<at::Tensor> tensors;
  std::vector<std::pair<at::Tensor, at::Tensor>> results;
  Fingerprint fingerprint;  // op, seq, dtype and (when 0) bytes are filled in
  Issue issue;
};

/// Opens the operation's range, checks it, sends it through the emulated link and arranges for its completion.
Handle start(Group& group, Call call);

}  // namespace taut::comm
