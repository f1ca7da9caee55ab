#include "runtime/comm/collectives.h"

#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "runtime/comm/group_impl.h"
#include "taut.h"
#include "tracer/annotate/annotate.h"

namespace taut::comm {

using annotate::CollectiveOp;

namespace {

constexpr std::array<const char*, 8> kOpNames = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                                 "all_to_all", "send",       "recv",           "barrier"};

const char* op_name(CollectiveOp op) {
  return kOpNames[static_cast<size_t>(op)];
}

const annotate::Name& range_name(CollectiveOp op) {
  static const std::array<annotate::Name, 8> names = {annotate::Name(kOpNames[0]), annotate::Name(kOpNames[1]),
                                                      annotate::Name(kOpNames[2]), annotate::Name(kOpNames[3]),
                                                      annotate::Name(kOpNames[4]), annotate::Name(kOpNames[5]),
                                                      annotate::Name(kOpNames[6]), annotate::Name(kOpNames[7])};
  return names[static_cast<size_t>(op)];
}

annotate::DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return annotate::DType::float32;
    case at::kBFloat16:
      return annotate::DType::bfloat16;
    case at::kHalf:
      return annotate::DType::float16;
    case at::kDouble:
      return annotate::DType::float64;
    case at::kLong:
      return annotate::DType::int64;
    case at::kInt:
      return annotate::DType::int32;
    case at::kByte:
      return annotate::DType::uint8;
    case at::kChar:
      return annotate::DType::int8;
    default:
      return annotate::DType::boolean;
  }
}

bool point_to_point(CollectiveOp op) {
  return op == CollectiveOp::send || op == CollectiveOp::recv;
}

}  // namespace

/// State shared by the issuer, the thread that completes the operation, and those who wait.
struct Operation {
  annotate::Collective info{};
  std::string group_name;
  bool cuda = false;
  nvtxRangeId_t range = 0;
  std::vector<at::Tensor> tensors;  // kept alive until completion
  c10::intrusive_ptr<c10d::Work> work;

  std::mutex mutex;
  std::condition_variable changed;
  bool issued = false, done = false;
  std::string failure;

  void set_issued() {
    std::lock_guard lock(mutex);
    issued = true;
    changed.notify_all();
  }

  void complete(std::string why_failed = {}) {
    annotate::end_range(range);
    tensors.clear();
    if (!cuda) work.reset();  // Gloo's work keeps its tensor for as long as the handle lives
    std::lock_guard lock(mutex);
    failure = std::move(why_failed);
    issued = done = true;
    changed.notify_all();
  }

  void wait() {
    static const annotate::Name wait_name("wait");
    const annotate::Range waiting(wait_name,
                                  annotate::CollectiveWait{info.group_id, info.seq, info.rank, info.peer, info.op, 0});
    std::unique_lock lock(mutex);
    // On CUDA the host only has to know that the operation is in the stream; the device waits by itself.
    changed.wait(lock, [&] { return cuda ? issued : done; });
    if (cuda && failure.empty() && work) {
      lock.unlock();
      work->wait();
      lock.lock();
    }
    if (failure.empty()) return;
    std::string what = std::string(op_name(info.op)) + " failed on group " + group_name + " (operation " +
                       std::to_string(info.seq) + ", rank " + std::to_string(info.rank);
    if (info.peer >= 0) what += ", peer rank " + std::to_string(info.peer);
    throw Error(what + "): " + failure.substr(0, failure.find('\n')),
                "another rank ended or no longer answers: look at the first rank that failed; "
                "communication.timeout_s sets how long to wait");
  }
};

CompletionQueue::CompletionQueue() : thread_([this] { run(); }) {}

CompletionQueue::~CompletionQueue() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  arrived_.notify_one();
  thread_.join();
}

void CompletionQueue::add(std::shared_ptr<Operation> operation) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(operation));
  }
  arrived_.notify_one();
}

void CompletionQueue::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    arrived_.wait(lock, [this] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const auto operation = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    try {
      if (operation->cuda) {
        while (!operation->work->isCompleted()) std::this_thread::sleep_for(std::chrono::microseconds(20));
      } else {
        operation->work->wait();
      }
      operation->complete();
    } catch (const std::exception& failure) {
      operation->complete(failure.what());
    }
    lock.lock();
  }
}

namespace {

using Issue = std::function<c10::intrusive_ptr<c10d::Work>(c10d::Backend&)>;

/// Opens the operation's range, sends it through the emulated link and arranges for its completion.
Handle start(Group& group, CollectiveOp op, int64_t bytes, annotate::DType dtype, ContentTag tag, int peer_member,
             bool is_async, std::vector<at::Tensor> tensors, Issue issue) {
  GroupImpl& impl = group.impl();
  auto operation = std::make_shared<Operation>();
  annotate::Collective& info = operation->info;
  info.group_id = group.id();
  info.seq = point_to_point(op) ? impl.next_message[{op == CollectiveOp::send, peer_member}]++ : impl.next_seq++;
  info.bytes = bytes;
  info.tensor_id = tag.id;
  info.tensor_version = tag.version;
  info.rank = group.global_rank();
  info.group_size = group.size();
  info.peer = peer_member >= 0 ? group.global_rank_of(peer_member) : -1;
  info.op = op;
  info.dtype = dtype;
  info.is_async = is_async;
  operation->group_name = group.name();
  operation->cuda = impl.cuda;
  operation->tensors = std::move(tensors);
  operation->range = annotate::start_range(range_name(op), info);

  auto really_issue = [operation, &impl, op, peer_member, issue = std::move(issue)] {
    try {
      operation->work = issue(*impl.backend);
      // Gloo's send, recv and reduce_scatter have no future to hang a callback on.
      if (impl.cuda || point_to_point(op) || op == CollectiveOp::reduce_scatter) {
        operation->set_issued();
        const int kind = !point_to_point(op) ? 0 : op == CollectiveOp::send ? 1 : 2;
        impl.queue(kind, peer_member).add(operation);
      } else {
        operation->work->getFuture()->addCallback(
            [operation](c10::ivalue::Future& future) {
              operation->complete(future.hasError() ? future.tryRetrieveErrorMessage() : std::string());
            },
            /*uses_future=*/false);
      }
    } catch (const std::exception& failure) {
      operation->complete(failure.what());
    }
  };
  // A receive is not delayed here: its sender's delay makes it late.
  if (op == CollectiveOp::recv) {
    really_issue();
  } else {
    impl.link->submit(wire_bytes(op, group.size(), bytes), std::move(really_issue));
  }
  return Handle(std::move(operation));
}

Handle start_all_reduce(Group& group, const at::Tensor& tensor, Reduce reduce, ContentTag tag, bool is_async) {
  if (group.size() == 1) return Handle();
  return start(group, CollectiveOp::all_reduce, tensor.nbytes(), dtype_of(tensor), tag, -1, is_async, {tensor},
               [tensor, reduce](c10d::Backend& backend) {
                 std::vector<at::Tensor> list{tensor};
                 c10d::AllreduceOptions options;
                 options.reduceOp = reduce == Reduce::max ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
                 return backend.allreduce(list, options);
               });
}

Handle start_all_gather(Group& group, const at::Tensor& output, const at::Tensor& input, ContentTag tag,
                        bool is_async) {
  if (group.size() == 1) {
    output.copy_(input);
    return Handle();
  }
  return start(group, CollectiveOp::all_gather, output.nbytes(), dtype_of(output), tag, -1, is_async, {output, input},
               [output, input](c10d::Backend& backend) {
                 at::Tensor out = output, in = input;
                 return backend._allgather_base(out, in);
               });
}

Handle start_reduce_scatter(Group& group, const at::Tensor& output, const at::Tensor& input, ContentTag tag,
                            bool is_async) {
  if (group.size() == 1) {
    output.copy_(input);
    return Handle();
  }
  return start(group, CollectiveOp::reduce_scatter, input.nbytes(), dtype_of(input), tag, -1, is_async, {output, input},
               [output, input](c10d::Backend& backend) {
                 at::Tensor out = output, in = input;
                 return backend._reduce_scatter_base(out, in);
               });
}

void check_rows(const Group& group, const char* which, const at::Tensor& tensor, const std::vector<int64_t>& rows) {
  const int64_t held = tensor.dim() > 0 ? tensor.size(0) : 0;
  int64_t sum = 0;
  bool valid = rows.empty() ? held % group.size() == 0 : static_cast<int>(rows.size()) == group.size();
  for (const int64_t count : rows) {
    valid = valid && count >= 0;
    sum += count;
  }
  if (valid && (rows.empty() || sum == held)) return;
  std::string counts;
  for (const int64_t count : rows) counts += (counts.empty() ? "" : ", ") + std::to_string(count);
  throw Error("all_to_all on group " + group.name() + ": the " + which + " has " + std::to_string(held) +
                  " rows, its blocks [" + counts + "]",
              "one count for each of the " + std::to_string(group.size()) +
                  " members, none negative, that sum to the rows; none at all for equal blocks");
}

Handle start_all_to_all(Group& group, const at::Tensor& output, const at::Tensor& input,
                        const std::vector<int64_t>& output_rows, const std::vector<int64_t>& input_rows, ContentTag tag,
                        bool is_async) {
  check_rows(group, "output", output, output_rows);
  check_rows(group, "input", input, input_rows);
  if (group.size() == 1) {
    output.copy_(input);
    return Handle();
  }
  return start(group, CollectiveOp::all_to_all, input.nbytes(), dtype_of(input), tag, -1, is_async, {output, input},
               [output, input, output_rows, input_rows](c10d::Backend& backend) {
                 at::Tensor out = output, in = input;
                 std::vector<int64_t> out_rows = output_rows, in_rows = input_rows;
                 return backend.alltoall_base(out, in, out_rows, in_rows);
               });
}

// Messages of one direction are numbered; the number doubles as Gloo's tag, so that none can be taken for another.
int message_tag(Group& group, bool sending, int peer) {
  return static_cast<int>(group.impl().next_message[{sending, peer}] % (1 << 20));
}

Handle start_send(Group& group, const at::Tensor& tensor, int peer, ContentTag tag, bool is_async) {
  const int number = message_tag(group, true, peer);
  return start(group, CollectiveOp::send, tensor.nbytes(), dtype_of(tensor), tag, peer, is_async, {tensor},
               [tensor, peer, number, &group](c10d::Backend&) {
                 std::vector<at::Tensor> list{tensor};
                 return group.impl().backend_for_message(group.rank(), peer).send(list, peer, number);
               });
}

Handle start_recv(Group& group, const at::Tensor& tensor, int peer, ContentTag tag, bool is_async) {
  const int number = message_tag(group, false, peer);
  return start(group, CollectiveOp::recv, tensor.nbytes(), dtype_of(tensor), tag, peer, is_async, {tensor},
               [tensor, peer, number, &group](c10d::Backend&) {
                 std::vector<at::Tensor> list{tensor};
                 return group.impl().backend_for_message(peer, group.rank()).recv(list, peer, number);
               });
}

}  // namespace

int64_t content_id(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const unsigned char c : name) hash = (hash ^ c) * 0x100000001b3ull;
  return static_cast<int64_t>(hash >> 1) | 1;
}

void Handle::wait() {
  if (operation_) operation_->wait();
}

Handle all_reduce_async(Group& group, const at::Tensor& tensor, Reduce reduce, ContentTag tag) {
  return start_all_reduce(group, tensor, reduce, tag, true);
}
Handle all_gather_into_tensor_async(Group& group, const at::Tensor& output, const at::Tensor& input, ContentTag tag) {
  return start_all_gather(group, output, input, tag, true);
}
Handle reduce_scatter_async(Group& group, const at::Tensor& output, const at::Tensor& input, ContentTag tag) {
  return start_reduce_scatter(group, output, input, tag, true);
}
Handle all_to_all_async(Group& group, const at::Tensor& output, const at::Tensor& input,
                        const std::vector<int64_t>& output_rows, const std::vector<int64_t>& input_rows,
                        ContentTag tag) {
  return start_all_to_all(group, output, input, output_rows, input_rows, tag, true);
}
Handle send_async(Group& group, const at::Tensor& tensor, int to_member, ContentTag tag) {
  return start_send(group, tensor, to_member, tag, true);
}
Handle recv_async(Group& group, const at::Tensor& tensor, int from_member, ContentTag tag) {
  return start_recv(group, tensor, from_member, tag, true);
}

void all_reduce(Group& group, const at::Tensor& tensor, Reduce reduce, ContentTag tag) {
  start_all_reduce(group, tensor, reduce, tag, false).wait();
}
void all_gather_into_tensor(Group& group, const at::Tensor& output, const at::Tensor& input, ContentTag tag) {
  start_all_gather(group, output, input, tag, false).wait();
}
void reduce_scatter(Group& group, const at::Tensor& output, const at::Tensor& input, ContentTag tag) {
  start_reduce_scatter(group, output, input, tag, false).wait();
}
void all_to_all(Group& group, const at::Tensor& output, const at::Tensor& input,
                const std::vector<int64_t>& output_rows, const std::vector<int64_t>& input_rows, ContentTag tag) {
  start_all_to_all(group, output, input, output_rows, input_rows, tag, false).wait();
}
void send(Group& group, const at::Tensor& tensor, int to_member, ContentTag tag) {
  start_send(group, tensor, to_member, tag, false).wait();
}
void recv(Group& group, const at::Tensor& tensor, int from_member, ContentTag tag) {
  start_recv(group, tensor, from_member, tag, false).wait();
}

void broadcast(Group& group, const at::Tensor& tensor, int root, ContentTag tag) {
  if (group.size() == 1) return;
  start(group, CollectiveOp::broadcast, tensor.nbytes(), dtype_of(tensor), tag, -1, false, {tensor},
        [tensor, root](c10d::Backend& backend) {
          std::vector<at::Tensor> list{tensor};
          c10d::BroadcastOptions options;
          options.rootRank = root;
          return backend.broadcast(list, options);
        })
      .wait();
}

void barrier(Group& group) {
  if (group.size() == 1) return;
  start(group, CollectiveOp::barrier, 0, annotate::DType::uint8, {}, -1, false, {}, [](c10d::Backend& backend) {
    return backend.barrier();
  }).wait();
}

void mark_tensor_use(Group& group, ContentTag tag, int64_t bytes_used, int64_t bytes_total) {
  static const annotate::Name name(annotate::TensorUse::kName);
  annotate::mark(name, annotate::TensorUse{tag.id, tag.version, bytes_used, bytes_total, group.global_rank(), 0});
}

}  // namespace taut::comm
