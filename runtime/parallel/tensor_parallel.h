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
//
// With `sequence_parallel` (Korthikanti et al., arXiv 2205.05198, section 4.2.2) the activations between the pairs are
// divided along the sequence, [batch, seq/tp, hidden]: a column-parallel layer gathers the sequence before its product
// and a row-parallel layer reduce-scatters instead of all-reducing. The same bytes travel; norms, dropout and the
// residual stream cost a tp-th.
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
  bool sequence_parallel = false;  // activations between blocks are divided along the sequence

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

/// [batch, seq/tp, n] -> [batch, seq, n]. Backward: the gradients of the whole are summed over tp and divided.
at::Tensor gather_sequence(const at::Tensor& input, TensorParallel& tp);
/// The same for a path whose gradient is complete on every tp rank. Backward: the own part.
at::Tensor gather_sequence_split(const at::Tensor& input, TensorParallel& tp);
/// [batch, seq, n] partial sums -> [batch, seq/tp, n], summed over tp and divided. Backward: gathered.
at::Tensor reduce_scatter_sequence(const at::Tensor& input, TensorParallel& tp);
/// [batch, seq, n], the same on every tp rank -> the own part [batch, seq/tp, n]. Backward: gathered.
at::Tensor scatter_sequence(const at::Tensor& input, TensorParallel& tp);

class ColumnParallelLinear {
 public:
  ColumnParallelLinear() = default;
  ColumnParallelLinear(const std::string& name, at::Tensor weight, TensorParallel& tp);
  /// [.., in] -> [.., out/tp]. `input` must be the same on every tp rank, or with sequence_parallel the rank's part
  /// [batch, seq/tp, in] of what becomes [batch, seq, out/tp].
  at::Tensor forward(const at::Tensor& input);
  /// What forward would cast its input to before anything else: whoever makes the input may write it in this type at
  /// once. Without sequence parallelism gradients are summed over tp in fp32, and the cast comes after that.
  at::ScalarType input_type() const;

 private:
  at::Tensor weight_;
  TensorParallel* tp_ = nullptr;
  int64_t output_id_ = 0, gradient_id_ = 0, calls_ = 0;
};

class RowParallelLinear {
 public:
  RowParallelLinear() = default;
  RowParallelLinear(at::Tensor weight, TensorParallel& tp) : weight_(std::move(weight)), tp_(&tp) {}
  /// [.., in/tp] -> [.., out], the same on every tp rank, or with sequence_parallel [batch, seq, in/tp] -> the rank's
  /// part [batch, seq/tp, out].
  at::Tensor forward(const at::Tensor& input) const;

 private:
  at::Tensor weight_;
  TensorParallel* tp_ = nullptr;
};

/// Rows of a vocabulary of `vocab` that each rank holds, padding included.
inline int64_t vocab_rows(int64_t vocab, int tp_size) {
  return (vocab + tp_size - 1) / tp_size;
}

/// `weight` [vocab_rows, hidden] holds this rank's rows; tokens [batch, seq] int64 -> [batch, seq, hidden], or
/// with sequence_parallel the rank's part [batch, seq/tp, hidden].
at::Tensor vocab_parallel_embedding(const at::Tensor& weight, const at::Tensor& tokens, TensorParallel& tp);

/// −log softmax(logits)[label] of each token, fp32 [tokens]; 0, and no gradient, where the label is negative (masked).
/// `logits` [tokens, vocab_rows] holds this rank's columns of `vocab`; labels [tokens] int64. Computed in fp32.
/// Backward writes the gradient over the logits: they may be read until then, and backward runs once.
at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits, const at::Tensor& labels, int64_t vocab,
                                        TensorParallel& tp);

}  // namespace taut::parallel
