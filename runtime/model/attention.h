// Causal self-attention over a sequence that context parallelism may have divided: softmax(q kᵀ / sqrt(head_dim) +
// mask) v, grouped queries included. Masks are defined in runtime/config/attention_mask.h: dense, sliding window,
// block-sparse.
//
// One rank, dense: LibTorch's scaled_dot_product_attention, with a faster backward for short 16-bit sequences on CPUs.
// Everything else is a list of pieces, each a set of
// neighbouring queries against the keys that they see: key blocks that the mask removes cost neither computation nor,
// over ranks, transfer. attention_plan.h lists the pieces, attention_block.h computes one.
//
// Over ranks it is ring attention (Liu et al., "Ring Attention with Blockwise Transformers", arXiv 2310.01889): in step
// j of cp_size steps rank r works on the keys of rank r − j, whose keys and values arrive while step j − 1 computes;
// the partial outputs are merged exactly by their log-sum-exp. A rank gets just the rows that one of its queries sees,
// straight from their owner rather than passed on from neighbour to neighbour; pairs of ranks with nothing to say to
// each other stay silent. Backward goes round a second time; what a rank finds for the gradients of others' keys
// returns to their owner, who sums in fp32.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "runtime/comm/process_group.h"
#include "runtime/config/config.h"

namespace taut::model {

struct AttentionShape {
  config::Attention kind = config::Attention::dense;
  int64_t window = 0;  // model.attention_window; not read for dense attention
};

/// `query` [batch, seq_local, heads, head_dim], `key` and `value` [batch, seq_local, groups, head_dim] of one floating
/// type, already rotated (RoPE); rows as parallel::take_sequence(…, shape.kind) gives them to this rank. Query head h
/// uses group h / (heads / groups). Returns [batch, seq_local, heads · head_dim] of that type, differentiable.
/// `cp` null or of size 1: the sequence is whole. Otherwise every member calls it at the same point of its operations
/// on `cp`, forward and backward. Throws taut::Error when a transfer fails. At most one thread of a rank at a time.
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const AttentionShape& shape, comm::Group* cp);

}  // namespace taut::model
