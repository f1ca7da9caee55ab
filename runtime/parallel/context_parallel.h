// How context parallelism divides a sequence over the ranks of a cp group.
//
// Dense and block-sparse attention: the sequence is cut into 2 · cp equal chunks and rank r holds chunks r and
// 2 · cp − 1 − r, one after the other ("zig-zag"). Under a causal mask late positions see more than early ones; a pair
// of an early and a late chunk costs the same on every rank.
// Sliding-window attention: every position but the first few sees equally many others, so rank r holds the r-th of cp
// equal chunks: its keys then come from itself and, where the window crosses its start, from the ranks before it.
//
// Every length must be divisible by 2 · cp (zig-zag) or cp, else taut::Error. Thread-safe: no state.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "runtime/config/config.h"

namespace taut::parallel {

/// The part of `full` that this rank holds, in the order in which it holds it: dimension `dim` of size seq becomes
/// seq / cp_size. A contiguous copy; `full` itself when cp_size is 1. No gradient flows back through it.
at::Tensor take_sequence(const at::Tensor& full, int64_t dim, int cp_rank, int cp_size, config::Attention attention);

/// Global positions of this rank's tokens: int64 [seq / cp_size], ascending. `seq` is the whole sequence's length.
at::Tensor local_positions(int64_t seq, int cp_rank, int cp_size, config::Attention attention);

}  // namespace taut::parallel
