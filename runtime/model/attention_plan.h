// Attention as a list of pieces: which local queries meet which keys of which rank. Worked out from the mask alone, so
// that sender and receiver of a transfer know the same without asking each other. LibTorch-free, no state.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/config/attention_mask.h"

namespace taut::model {

/// Neighbouring queries against some keys. With queries and keys counted from the piece's first one (keys of several
/// intervals one after the other), query i sees the keys c with i + lower <= c <= i + upper. Every query sees at least
/// one key.
struct Piece {
  config::Interval queries;            // local rows
  std::vector<config::Interval> keys;  // rows of AttentionStep::rows, one after the other
  int64_t lower = 0, upper = 0;

  int64_t key_count() const;
  bool sees_all() const { return upper >= key_count() - 1 && lower <= 1 - queries.size(); }
  bool causal() const { return upper == 0 && key_count() == queries.size() && lower <= 1 - queries.size(); }
};

/// What one rank does with the keys of one rank.
struct AttentionStep {
  std::vector<config::Interval> rows;  // the key rows that are needed, as rows of the source; empty: nothing to do
  std::vector<Piece> pieces;           // ascending queries; in a rank's own step they cover each query once

  int64_t row_count() const;
};

/// What cp member `rank` of `cp_size` does with the keys of member `source`. In its own step `rows` is everything. The
/// sequence is divided as config::context_parallel_ranges says. O(tiles), where a tile is a block (block_sparse), 64 to
/// 256 queries (sliding_window) or everything (dense).
AttentionStep plan_step(const config::AttentionMask& mask, int rank, int source, int cp_size);

}  // namespace taut::model
