#include "runtime/model/attention_plan.h"

#include <algorithm>

namespace taut::model {
namespace {

using config::Attention;
using config::AttentionMask;
using config::Interval;

int64_t total(const std::vector<Interval>& intervals) {
  int64_t sum = 0;
  for (const Interval& interval : intervals) sum += interval.size();
  return sum;
}

void append(std::vector<Interval>& intervals, Interval next) {
  if (!intervals.empty() && intervals.back().last == next.first) {
    intervals.back().last = next.last;
  } else {
    intervals.push_back(next);
  }
}

/// The parts of a rank's sequence that are planned as one, as positions.
std::vector<Interval> tiles_of(const AttentionMask& mask, Interval part) {
  // A window's tile computes size + window keys a query, of which it needs window: small tiles waste little, but are
  // slower a key. A quarter of the window is the best of 32 … 512 on an AVX-512 CPU.
  const int64_t size = mask.kind == Attention::sliding_window ? std::clamp<int64_t>(mask.window / 4, 64, 256)
                       : mask.kind == Attention::block_sparse ? mask.window
                                                              : mask.seq;
  const int64_t origin = mask.kind == Attention::sliding_window ? part.first : 0;
  std::vector<Interval> tiles;
  for (int64_t first = part.first; first < part.last;) {
    const int64_t last = std::min(part.last, origin + ((first - origin) / size + 1) * size);
    tiles.push_back({first, last});
    first = last;
  }
  return tiles;
}

/// The rows at which a rank that holds `held` has those of `positions` that it holds.
std::vector<Interval> rows_of(const std::vector<Interval>& positions, const std::vector<Interval>& held) {
  std::vector<Interval> rows;
  int64_t row = 0;
  for (const Interval& part : held) {
    for (const Interval& wanted : positions) {
      const Interval both{std::max(part.first, wanted.first), std::min(part.last, wanted.last)};
      if (both.size() > 0) append(rows, {row + both.first - part.first, row + both.last - part.first});
    }
    row += part.size();
  }
  return rows;
}

/// Joins pieces of neighbouring queries that see all of the same keys.
void join(std::vector<Piece>& pieces) {
  std::vector<Piece> joined;
  for (Piece& piece : pieces) {
    if (!joined.empty()) {
      Piece& before = joined.back();
      if (before.keys == piece.keys && before.queries.last == piece.queries.first && before.sees_all() &&
          piece.sees_all()) {
        before.queries.last = piece.queries.last;
        before.lower = -before.queries.size();
        continue;
      }
    }
    joined.push_back(std::move(piece));
  }
  pieces = std::move(joined);
}

/// Makes `step.rows` the key rows that the pieces name, and lets these count within it.
void keep_needed_rows(AttentionStep& step) {
  std::vector<Interval> named;
  for (const Piece& piece : step.pieces) named.insert(named.end(), piece.keys.begin(), piece.keys.end());
  std::sort(named.begin(), named.end(), [](const Interval& a, const Interval& b) { return a.first < b.first; });
  for (const Interval& rows : named) {
    if (!step.rows.empty() && rows.first <= step.rows.back().last) {
      step.rows.back().last = std::max(step.rows.back().last, rows.last);
    } else {
      step.rows.push_back(rows);
    }
  }
  for (Piece& piece : step.pieces) {
    std::vector<Interval> keys;
    for (const Interval& rows : rows_of(piece.keys, step.rows)) append(keys, rows);
    piece.keys = std::move(keys);
  }
}

}  // namespace

int64_t Piece::key_count() const {
  return total(keys);
}

int64_t AttentionStep::row_count() const {
  return total(rows);
}

AttentionStep plan_step(const AttentionMask& mask, int rank, int source, int cp_size) {
  const auto queries = config::context_parallel_ranges(mask.kind, mask.seq, rank, cp_size);
  const auto held = config::context_parallel_ranges(mask.kind, mask.seq, source, cp_size);
  const bool own = rank == source;
  AttentionStep step;
  if (own) step.rows = {{0, total(held)}};
  if (own && mask.kind == Attention::dense) {
    // Rows ascend in position, so that "sees every earlier position" is "sees every earlier row".
    const Interval all{0, total(held)};
    step.pieces = {{all, {all}, -all.size(), 0}};
    return step;
  }
  int64_t row = 0;
  for (const Interval& part : queries) {
    for (const Interval& tile : tiles_of(mask, part)) {
      auto positions = config::visible_keys(mask, tile);
      Piece piece;
      piece.keys = rows_of(positions, held);
      if (piece.keys.empty()) continue;
      const int64_t first_row = row + tile.first - part.first, keys = piece.key_count();
      piece.queries = {first_row, first_row + tile.size()};
      piece.lower = -tile.size();
      // Another rank's keys all come before the tile; a rank's own end with the tile's own positions.
      piece.upper = own ? keys - tile.size() : keys;
      if (mask.kind == Attention::sliding_window) {
        // One chunk a rank: rows are one interval, and its first position is known.
        const int64_t first_key = held[0].first + piece.keys[0].first, last_key = first_key + keys - 1;
        piece.lower = tile.first - mask.window + 1 - first_key;
        piece.queries.last = std::min(piece.queries.last, first_row + last_key + mask.window - tile.first);
      }
      step.pieces.push_back(std::move(piece));
    }
    row += part.size();
  }
  if (!own) {
    join(step.pieces);
    keep_needed_rows(step);
  }
  return step;
}

}  // namespace taut::model
