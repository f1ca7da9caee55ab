// Collectives and send/recv with their annotations.
//
// Every operation is a start/end range in the trace from issue to real completion (ended by the thread that completes
// it, not by whoever waits), and blocking on it is a "wait" range. Failures become taut::Error naming operation, group,
// sequence number and peer. Tensors must be contiguous and stay untouched until the operation is done.
//
// Issue operations of one group from one thread at a time and in the same order on every member. In a group of one
// every operation is done at once and leaves no trace.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/comm/process_group.h"
#include "tracer/annotate/annotate.h"

namespace taut::comm {

using Reason = annotate::Reason;

/// What a transfer carries, and what for. The same (id, version) gathered twice was redundant; 0, 0 = unknown. Where it
/// carries parameters or their gradients, [first_element, first_element + elements) is their range in the rank's flat
/// buffer of parameters; 0, 0 = does not apply.
struct ContentTag {
  int64_t id = 0, version = 0;
  Reason reason = Reason::unknown;
  int64_t first_element = 0, elements = 0;
};

/// The id of a named tensor: a hash, equal on every rank and in every run, never 0.
int64_t content_id(std::string_view name);

enum class Reduce { sum, max };

struct Operation;

/// An operation under way. Copies refer to the same operation.
class Handle {
 public:
  Handle() = default;
  explicit Handle(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}

  /// Blocks until the result may be used (on CUDA: until the current stream waits for it). Throws taut::Error when the
  /// operation failed. May be called again.
  void wait();
  explicit operator bool() const { return operation_ != nullptr; }

 private:
  std::shared_ptr<Operation> operation_;
};

/// `tensor` becomes the reduction over the group, in place.
Handle all_reduce_async(Group& group, const at::Tensor& tensor, Reduce reduce = Reduce::sum, ContentTag tag = {});
/// `output` [size · n, …] becomes the members' `input` [n, …] one after another.
Handle all_gather_into_tensor_async(Group& group, const at::Tensor& output, const at::Tensor& input,
                                    ContentTag tag = {});
/// `output` [n, …] becomes this member's part of the sum of `input` [size · n, …].
Handle reduce_scatter_async(Group& group, const at::Tensor& output, const at::Tensor& input, ContentTag tag = {});
/// Exchanges blocks of rows (dim 0): block i of `input` goes to member i, block i of `output` comes from member i,
/// blocks in member order. `input_rows[i]` and `output_rows[i]` count them (0 allowed) and sum to the tensors' rows;
/// what one member sends the other must expect. Both empty: equal blocks. Rows have the same shape and type everywhere.
Handle all_to_all_async(Group& group, const at::Tensor& output, const at::Tensor& input,
                        const std::vector<int64_t>& output_rows = {}, const std::vector<int64_t>& input_rows = {},
                        ContentTag tag = {});
/// Message to and from a member of the group, matched in order.
Handle send_async(Group& group, const at::Tensor& tensor, int to_member, ContentTag tag = {});
Handle recv_async(Group& group, const at::Tensor& tensor, int from_member, ContentTag tag = {});

/// The blocking forms.
void all_reduce(Group& group, const at::Tensor& tensor, Reduce reduce = Reduce::sum, ContentTag tag = {});
void all_gather_into_tensor(Group& group, const at::Tensor& output, const at::Tensor& input, ContentTag tag = {});
void reduce_scatter(Group& group, const at::Tensor& output, const at::Tensor& input, ContentTag tag = {});
void all_to_all(Group& group, const at::Tensor& output, const at::Tensor& input,
                const std::vector<int64_t>& output_rows = {}, const std::vector<int64_t>& input_rows = {},
                ContentTag tag = {});
/// `tensor` becomes that of member `root`.
void broadcast(Group& group, const at::Tensor& tensor, int root, ContentTag tag = {});
void send(Group& group, const at::Tensor& tensor, int to_member, ContentTag tag = {});
void recv(Group& group, const at::Tensor& tensor, int from_member, ContentTag tag = {});
/// Returns when every member has called it.
void barrier(Group& group);

/// Marks that `bytes_used` of a gathered tensor's `bytes_total` were read here.
void mark_tensor_use(Group& group, ContentTag tag, int64_t bytes_used, int64_t bytes_total);

}  // namespace taut::comm
