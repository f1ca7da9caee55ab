#include "runtime/comm/collectives.h"

#include "runtime/comm/operation.h"
#include "taut.h"

namespace taut::comm {

using annotate::CollectiveOp;

namespace {

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

// Staging, for groups that work on host copies: an operation's input is copied when it is issued (the copy waits for
// the stream), its result when somebody waits for it (Operation::wait). Elsewhere the backend gets the tensor itself.

at::Tensor staged_output(Group& group, const at::Tensor& tensor) {
  return group.impl().staged ? at::empty(tensor.sizes(), tensor.options().device(at::kCPU)) : tensor;
}

at::Tensor staged_input(Group& group, const at::Tensor& tensor) {
  return group.impl().staged ? staged_output(group, tensor).copy_(tensor.detach()) : tensor;
}

/// What who waits copies back: nothing when the operation worked on the tensor itself.
std::vector<std::pair<at::Tensor, at::Tensor>> copy_back(const at::Tensor& tensor, const at::Tensor& staged) {
  if (tensor.is_same(staged)) return {};
  return {{tensor, staged}};
}

Call call_of(CollectiveOp op, const at::Tensor& whole, ContentTag tag, bool is_async, std::vector<at::Tensor> tensors) {
  Call call;
  call.op = op;
  call.bytes = static_cast<int64_t>(whole.nbytes());
  call.dtype = dtype_of(whole);
  call.tag = tag;
  call.is_async = is_async;
  call.tensors = std::move(tensors);
  return call;
}

Handle start_all_reduce(Group& group, const at::Tensor& tensor, Reduce reduce, ContentTag tag, bool is_async) {
  if (group.size() == 1) return Handle();
  const at::Tensor own = staged_input(group, tensor);
  Call call = call_of(CollectiveOp::all_reduce, tensor, tag, is_async, {own});
  call.results = copy_back(tensor, own);
  call.fingerprint.reduce = reduce == Reduce::max ? 1 : 0;
  call.issue = [own, reduce](c10d::Backend& backend) {
    std::vector<at::Tensor> list{own};
    c10d::AllreduceOptions options;
    options.reduceOp = reduce == Reduce::max ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
    return backend.allreduce(list, options);
  };
  return start(group, std::move(call));
}

Handle start_all_gather(Group& group, const at::Tensor& output, const at::Tensor& input, ContentTag tag,
                        bool is_async) {
  if (group.size() == 1) {
    output.copy_(input);
    return Handle();
  }
  const at::Tensor in = staged_input(group, input), out = staged_output(group, output);
  Call call = call_of(CollectiveOp::all_gather, output, tag, is_async, {out, in});
  call.results = copy_back(output, out);
  call.issue = [out, in](c10d::Backend& backend) {
    at::Tensor whole = out, part = in;
    return backend._allgather_base(whole, part);
  };
  return start(group, std::move(call));
}

Handle start_reduce_scatter(Group& group, const at::Tensor& output, const at::Tensor& input, ContentTag tag,
                            bool is_async) {
  if (group.size() == 1) {
    output.copy_(input);
    return Handle();
  }
  const at::Tensor in = staged_input(group, input), out = staged_output(group, output);
  Call call = call_of(CollectiveOp::reduce_scatter, input, tag, is_async, {out, in});
  call.results = copy_back(output, out);
  call.issue = [out, in](c10d::Backend& backend) {
    at::Tensor part = out, whole = in;
    return backend._reduce_scatter_base(part, whole);
  };
  return start(group, std::move(call));
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

/// Bytes per member of a tensor whose rows are blocks for (or from) the members.
std::vector<int64_t> block_bytes(const Group& group, const at::Tensor& tensor, const std::vector<int64_t>& rows) {
  std::vector<int64_t> bytes(group.size(), static_cast<int64_t>(tensor.nbytes()) / group.size());
  if (rows.empty() || tensor.size(0) == 0) return bytes;
  const int64_t row = static_cast<int64_t>(tensor.nbytes()) / tensor.size(0);
  for (size_t member = 0; member < rows.size(); ++member) bytes[member] = rows[member] * row;
  return bytes;
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
  const at::Tensor in = staged_input(group, input), out = staged_output(group, output);
  Call call = call_of(CollectiveOp::all_to_all, input, tag, is_async, {out, in});
  call.results = copy_back(output, out);
  call.fingerprint.bytes = static_cast<int64_t>(input.element_size());
  for (int64_t dim = 1; dim < input.dim(); ++dim) call.fingerprint.bytes *= input.size(dim);
  call.fingerprint.sends = block_bytes(group, input, input_rows);
  call.fingerprint.expects = block_bytes(group, output, output_rows);
  call.issue = [out, in, output_rows, input_rows](c10d::Backend& backend) {
    at::Tensor to = out, from = in;
    std::vector<int64_t> to_rows = output_rows, from_rows = input_rows;
    return backend.alltoall_base(to, from, to_rows, from_rows);
  };
  return start(group, std::move(call));
}

// Messages of one direction are numbered; the number doubles as Gloo's tag, so that none can be taken for another.
int message_tag(Group& group, bool sending, int peer) {
  return static_cast<int>(group.impl().next_message[{sending, peer}] % (1 << 20));
}

Handle start_send(Group& group, const at::Tensor& tensor, int peer, ContentTag tag, bool is_async) {
  const at::Tensor own = staged_input(group, tensor);
  Call call = call_of(CollectiveOp::send, tensor, tag, is_async, {own});
  call.peer = peer;
  call.issue = [own, peer, number = message_tag(group, true, peer), &group](c10d::Backend&) {
    std::vector<at::Tensor> list{own};
    return group.impl().backend_for_message(group.rank(), peer).send(list, peer, number);
  };
  return start(group, std::move(call));
}

Handle start_recv(Group& group, const at::Tensor& tensor, int peer, ContentTag tag, bool is_async) {
  const at::Tensor own = staged_output(group, tensor);
  Call call = call_of(CollectiveOp::recv, tensor, tag, is_async, {own});
  call.peer = peer;
  call.results = copy_back(tensor, own);
  call.issue = [own, peer, number = message_tag(group, false, peer), &group](c10d::Backend&) {
    std::vector<at::Tensor> list{own};
    return group.impl().backend_for_message(peer, group.rank()).recv(list, peer, number);
  };
  return start(group, std::move(call));
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
  const at::Tensor own = staged_input(group, tensor);
  Call call = call_of(CollectiveOp::broadcast, tensor, tag, false, {own});
  call.results = copy_back(tensor, own);
  call.fingerprint.root = root;
  call.issue = [own, root](c10d::Backend& backend) {
    std::vector<at::Tensor> list{own};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return backend.broadcast(list, options);
  };
  start(group, std::move(call)).wait();
}

void barrier(Group& group) {
  if (group.size() == 1) return;
  Call call;
  call.op = CollectiveOp::barrier;
  call.tag.reason = Reason::control;
  call.issue = [](c10d::Backend& backend) { return backend.barrier(); };
  start(group, std::move(call)).wait();
}

void mark_tensor_use(Group& group, ContentTag tag, int64_t bytes_used, int64_t bytes_total) {
  static const annotate::Name name(annotate::TensorUse::kName);
  annotate::mark(name, annotate::TensorUse{tag.id, tag.version, bytes_used, bytes_total, group.global_rank(), 0});
}

}  // namespace taut::comm
