// Plans of attention over ranks: what is computed is what the mask says, once; what it removes costs nothing.
#include "runtime/model/attention_plan.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <map>

namespace taut::model {
namespace {

using config::Attention;
using config::AttentionMask;
using config::Interval;

std::vector<int64_t> positions_of(const AttentionMask& mask, int rank, int ranks) {
  std::vector<int64_t> positions;
  for (const Interval& part : config::context_parallel_ranges(mask.kind, mask.seq, rank, ranks)) {
    for (int64_t i = part.first; i < part.last; ++i) positions.push_back(i);
  }
  return positions;
}

/// How often each (query, key) pair of positions is computed, by all ranks.
std::map<std::pair<int64_t, int64_t>, int> computed_pairs(const AttentionMask& mask, int ranks) {
  std::map<std::pair<int64_t, int64_t>, int> pairs;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto queries = positions_of(mask, rank, ranks);
    for (int source = 0; source < ranks; ++source) {
      const auto held = positions_of(mask, source, ranks);
      const AttentionStep step = plan_step(mask, rank, source, ranks);
      std::vector<int64_t> arrived;
      for (const Interval& rows : step.rows) {
        for (int64_t row = rows.first; row < rows.last; ++row) arrived.push_back(held.at(row));
      }
      for (const Piece& piece : step.pieces) {
        std::vector<int64_t> keys;
        for (const Interval& rows : piece.keys) {
          for (int64_t row = rows.first; row < rows.last; ++row) keys.push_back(arrived.at(row));
        }
        for (int64_t i = 0; i < piece.queries.size(); ++i) {
          int64_t seen = 0;
          for (int64_t c = 0; c < static_cast<int64_t>(keys.size()); ++c) {
            if (c < i + piece.lower || c > i + piece.upper) continue;
            ++pairs[{queries.at(piece.queries.first + i), keys[c]}];
            ++seen;
          }
          EXPECT_GT(seen, 0) << "a query without a key has no softmax";
        }
      }
    }
  }
  return pairs;
}

TEST(AttentionPlan, ComputesEveryVisiblePairOnceAndNoOther) {
  const AttentionMask masks[] = {
      {Attention::dense, 0, 96},           {Attention::sliding_window, 1, 96},    {Attention::sliding_window, 7, 96},
      {Attention::sliding_window, 31, 96}, {Attention::sliding_window, 200, 320}, {Attention::block_sparse, 4, 96},
      {Attention::block_sparse, 7, 96},    {Attention::block_sparse, 100, 96}};
  for (const AttentionMask& mask : masks) {
    for (const int ranks : {1, 2, 4, 8}) {
      if (mask.seq % (2 * ranks) != 0) continue;
      const auto pairs = computed_pairs(mask, ranks);
      EXPECT_EQ(static_cast<int64_t>(pairs.size()), config::visible_pairs(mask));
      for (const auto& [pair, times] : pairs) {
        ASSERT_TRUE(config::sees(mask, pair.first, pair.second)) << pair.first << " " << pair.second;
        ASSERT_EQ(times, 1) << pair.first << " " << pair.second;
      }
    }
  }
}

/// Queries times keys, whether the mask then hides some of them or not.
int64_t work(const AttentionStep& step) {
  int64_t sum = 0;
  for (const Piece& piece : step.pieces) sum += piece.queries.size() * piece.key_count();
  return sum;
}

TEST(AttentionPlan, ZigZagGivesEveryRankEqualWorkInEveryStep) {
  const AttentionMask mask{Attention::dense, 0, 64};
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(work(plan_step(mask, rank, rank, 4)), 16 * 16);  // causal: half of it
    for (int step = 1; step < 4; ++step) EXPECT_EQ(work(plan_step(mask, rank, (rank + step) % 4, 4)), 2 * 8 * 8);
  }
}

TEST(AttentionPlan, DenseKeysTravelOnlyWhereSomeQuerySeesThem) {
  const AttentionMask mask{Attention::dense, 0, 64};
  EXPECT_EQ(plan_step(mask, 3, 1, 4).rows, (std::vector<Interval>{{0, 8}}));   // rank 1's late chunk is later still
  EXPECT_EQ(plan_step(mask, 1, 3, 4).rows, (std::vector<Interval>{{0, 16}}));  // both, for the late chunk's queries
}

TEST(AttentionPlan, WindowAsksOnlyItsNeighbourForOnlyTheWindow) {
  const AttentionMask mask{Attention::sliding_window, 100, 4096};
  for (int rank = 0; rank < 4; ++rank) {
    for (int source = 0; source < 4; ++source) {
      if (source == rank) continue;
      const AttentionStep step = plan_step(mask, rank, source, 4);
      if (source == rank - 1) {
        EXPECT_EQ(step.rows, (std::vector<Interval>{{1024 - 99, 1024}}));
      } else {
        EXPECT_TRUE(step.rows.empty() && step.pieces.empty()) << rank << " from " << source;
      }
    }
  }
}

TEST(AttentionPlan, SparseMasksSaveWorkAndTransfers) {
  const int64_t seq = 4096;
  const int64_t chunk = seq / 8,
                dense_rows = 6 * chunk + 6 * 2 * chunk;  // from earlier ranks one chunk, from later ones two
  for (const AttentionMask& mask :
       {AttentionMask{Attention::sliding_window, 256, seq}, AttentionMask{Attention::block_sparse, 128, seq}}) {
    int64_t rows = 0, pairs = 0;
    for (int rank = 0; rank < 4; ++rank) {
      for (int source = 0; source < 4; ++source) {
        const AttentionStep step = plan_step(mask, rank, source, 4);
        if (source != rank) rows += step.row_count();
        pairs += work(step);
      }
    }
    std::printf("kind %d: %lld key rows travel (dense %lld); %.2f of the dense pairs are computed, %.2f visible\n",
                static_cast<int>(mask.kind), static_cast<long long>(rows), static_cast<long long>(dense_rows),
                static_cast<double>(pairs) / (seq * seq / 2.0),
                static_cast<double>(config::visible_pairs(mask)) / (seq * seq / 2.0));
    EXPECT_LT(rows, dense_rows / 2);
    EXPECT_LE(static_cast<double>(pairs), 1.5 * static_cast<double>(config::visible_pairs(mask)));
  }
}

}  // namespace
}  // namespace taut::model
