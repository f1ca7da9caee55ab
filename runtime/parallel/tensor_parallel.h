// Tensor parallelism (Shoeybi et al., "Megatron-LM", arXiv 1909.08053, section 3): pairs of column- and row-parallel
// linear layers, the vocabulary-parallel embedding and cross-entropy. With a tp group of one these are the plain
// layers.
//
// Column-parallel: weight [out/tp, in], input [.., in] on every rank, output [.., out/tp]. Backward sums the input's
// gradient over tp. Row-parallel: weight [out, in/tp], input [.., in/tp], output [.., out] summed over tp.
//
// `gather_output` is the naive form: every column-parallel layer gathers its whole output over tp (forward), and
// whoever consumes it takes its own part again; backward gathers the part's gradient, and the layer takes its own part
// again. The result is the same; the gathers are needless. Uses are marked in the trace, so that an analyzer can tell.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>

#include "runtime/comm/collectives.h"

namespace taut::parallel {

/// The tp group as layers see it; outlives them.
struct TensorParallel {
  comm::Group* group = nullptr;
  bool gather_output = false;
  bool sequence_parallel = false;

  int size() const { return group ? group->size() : 1; }
  int rank() const { return group ? group->rank() : 0; }
};

/// Forward: identity. Backward: the gradient is summed over tp.
at::Tensor copy_to_tensor_parallel(const at::Tensor& input, TensorParallel& tp);
/// Forward: sum over tp. Backward: identity.
at::Tensor reduce_from_tensor_parallel(const at::Tensor& input, TensorParallel& tp);
/// Forward: [.., n] becomes [.., n · tp], gathered. Backward: this rank's part of the gradient. `gradient_tag` names
/// the gathered gradient whose part it takes.
at::Tensor gather_from_tensor_parallel(const at::Tensor& input, TensorParallel& tp, comm::ContentTag tag,
                                       comm::ContentTag gradient_tag);
/// Forward: this rank's part of [.., n · tp]. Backward: the parts' gradients gathered. Tags as above.
at::Tensor slice_to_tensor_parallel(const at::Tensor& input, TensorParallel& tp, comm::ContentTag tag,
                                    comm::ContentTag gradient_tag);

class ColumnParallelLinear {
 public:
  ColumnParallelLinear() = default;
  ColumnParallelLinear(const std::string& name, at::Tensor weight, TensorParallel& tp);
  /// [.., in] -> [.., out/tp]. `input` must be the same on every tp rank.
  at::Tensor forward(const at::Tensor& input);

 private:
  at::Tensor weight_;
  TensorParallel* tp_ = nullptr;
  int64_t output_id_ = 0, gradient_id_ = 0, calls_ = 0;
};

class RowParallelLinear {
 public:
  RowParallelLinear() = default;
  RowParallelLinear(at::Tensor weight, TensorParallel& tp) : weight_(std::move(weight)), tp_(&tp) {}
  /// [.., in/tp] -> [.., out], the same on every tp rank.
  at::Tensor forward(const at::Tensor& input) const;

 private:
  at::Tensor weight_;
  TensorParallel* tp_ = nullptr;
};

/// Rows of a vocabulary of `vocab` that each rank holds, padding included.
inline int64_t vocab_rows(int64_t vocab, int tp_size) {
  return (vocab + tp_size - 1) / tp_size;
}

/// `weight` [vocab_rows, hidden] holds this rank's rows; tokens [batch, seq] int64 -> [batch, seq, hidden].
at::Tensor vocab_parallel_embedding(const at::Tensor& weight, const at::Tensor& tokens, TensorParallel& tp);

/// Mean over all tokens of −log softmax(logits)[label]. `logits` [tokens, vocab_rows] holds this rank's columns of
/// `vocab`; labels [tokens] int64. Computed in fp32.
at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits, const at::Tensor& labels, int64_t vocab,
                                        TensorParallel& tp);

}  // namespace taut::parallel
