// One piece of attention: some queries against some keys, by the fastest kernel that takes them; and the exact merge of
// the partial outputs of the same queries over disjoint keys.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace taut::model {

/// cpu_flash and cuda_flash are LibTorch's flash attention, cuda_efficient its memory-efficient one (fp32, and masks on
/// CUDA); plain is written out in matrix products and takes everything.
enum class BlockKernel { cpu_flash, cuda_flash, cuda_efficient, plain };

/// Which keys a query of the block sees: query i the keys c with i + lower <= c <= i + upper.
struct BlockMask {
  bool sees_all = true, causal = false;  // causal: as many keys as queries, i sees 0 … i
  at::Tensor bias;  // neither: [queries, keys] of the query's type, 0 or −inf, as made by band_bias
};

/// 0 where query i sees key c, else −inf.
at::Tensor band_bias(int64_t queries, int64_t keys, int64_t lower, int64_t upper, const at::TensorOptions& options);

BlockKernel choose_kernel(const at::Tensor& query, const BlockMask& mask);

/// Whether block_backward computes 16-bit inputs in fp32 because that is faster.
bool backward_widens(BlockKernel kernel, const at::Tensor& query);

struct BlockOutput {
  at::Tensor output;       // [batch, heads, queries, head_dim], query's type
  at::Tensor log_sum_exp;  // [batch, heads, queries] of the scaled scores, fp32 (double for double)
};

/// `query` [batch, heads, queries, head_dim], `key` and `value` [batch, groups, keys, head_dim], any strides with a
/// dense last dimension. Scores are scaled by 1 / sqrt(head_dim). Every query must see a key.
BlockOutput block_forward(BlockKernel kernel, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const BlockMask& mask);

struct BlockGradients {
  at::Tensor query, key, value;  // shaped like the inputs, of their type or fp32
};

/// The block's part of the gradients. `output` and `log_sum_exp` are those of the queries over all their keys, also
/// over those of other blocks: softmax's weights are exp(score − log_sum_exp).
BlockGradients block_backward(BlockKernel kernel, const at::Tensor& output_gradient, const at::Tensor& query,
                              const at::Tensor& key, const at::Tensor& value, const at::Tensor& output,
                              const at::Tensor& log_sum_exp, const BlockMask& mask);

/// Merges `block` into `output` (fp32 or wider) and `log_sum_exp`, in place: with L = log(exp(a) + exp(b)) of the two
/// log-sum-exps the outputs are weighted by exp(a − L) and exp(b − L).
void merge_block(const at::Tensor& output, const at::Tensor& log_sum_exp, const BlockOutput& block);

}  // namespace taut::model
