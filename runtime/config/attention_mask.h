// Which keys a query sees: the definition of the three kinds of attention, used by the runtime's kernels, by the split
// of a sequence over context-parallel ranks and by the count of operations. All are causal; position i is a token's
// place in its sequence.
//
//   dense            i sees 0 … i.
//   sliding_window   i sees the `window` positions i − window + 1 … i.
//   block_sparse     positions form blocks of `window`. A block sees itself (causally), the block before it, block 0
//   (the
//                    attention sink) and the summary blocks among those before it: blocks stride − 1, 2 · stride − 1, …
//                    with stride = ceil(sqrt(number of blocks)). This is the "fixed" pattern of Child et al.,
//                    "Generating Long Sequences with Sparse Transformers" (arXiv 1904.10509, section 4.2), on blocks,
//                    plus the sink: a position sees O(window · sqrt(blocks)) keys, and all ranks want the same few
//                    summary blocks.
//
// LibTorch-free, plain data, no state: safe from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/config/config.h"

namespace taut::config {

/// `window` is not read for dense attention. `seq` is the whole sequence's length in tokens.
struct AttentionMask {
  Attention kind = Attention::dense;
  int64_t window = 0, seq = 0;
};
AttentionMask attention_mask(const Model& model);

/// Positions [first, last).
struct Interval {
  int64_t first = 0, last = 0;
  int64_t size() const { return last - first; }
  bool operator==(const Interval&) const = default;
};

/// Whether position `query` sees position `key`.
bool sees(const AttentionMask& mask, int64_t query, int64_t key);

/// The keys that at least one of `queries` sees, ascending, disjoint, neighbours joined. For block_sparse `queries`
/// must lie within one block.
std::vector<Interval> visible_keys(const AttentionMask& mask, Interval queries);

/// How many (query, key) pairs of one sequence the mask leaves, exactly. O(blocks).
int64_t visible_pairs(const AttentionMask& mask);

/// The positions that a context-parallel rank holds, in order; runtime/parallel/context_parallel.h says why.
std::vector<Interval> context_parallel_ranges(Attention kind, int64_t seq, int64_t cp_rank, int64_t cp_size);

}  // namespace taut::config
