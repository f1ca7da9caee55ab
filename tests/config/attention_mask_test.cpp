// The masks against their definitions, pair by pair.
#include "runtime/config/attention_mask.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "runtime/config/model_math.h"

namespace taut::config {
namespace {

const AttentionMask kMasks[] = {
    {Attention::dense, 0, 50},           {Attention::sliding_window, 1, 50}, {Attention::sliding_window, 7, 50},
    {Attention::sliding_window, 80, 50}, {Attention::block_sparse, 1, 50},   {Attention::block_sparse, 5, 50},
    {Attention::block_sparse, 7, 50},    {Attention::block_sparse, 50, 50},  {Attention::block_sparse, 64, 50},
};

bool by_definition(const AttentionMask& mask, int64_t i, int64_t j) {
  if (j > i) return false;
  if (mask.kind == Attention::dense) return true;
  if (mask.kind == Attention::sliding_window) return i - j < mask.window;
  const double blocks = std::ceil(static_cast<double>(mask.seq) / static_cast<double>(mask.window));
  const auto stride = static_cast<int64_t>(std::ceil(std::sqrt(blocks)));
  const int64_t query_block = i / mask.window, key_block = j / mask.window;
  return query_block - key_block <= 1 || key_block == 0 || (key_block + 1) % stride == 0;
}

TEST(AttentionMask, SeesAndCountsWhatItsDefinitionSays) {
  for (const AttentionMask& mask : kMasks) {
    int64_t pairs = 0;
    for (int64_t i = 0; i < mask.seq; ++i) {
      for (int64_t j = 0; j < mask.seq; ++j) {
        ASSERT_EQ(sees(mask, i, j), by_definition(mask, i, j))
            << "kind " << static_cast<int>(mask.kind) << " window " << mask.window << " " << i << " " << j;
        pairs += by_definition(mask, i, j);
      }
    }
    EXPECT_EQ(visible_pairs(mask), pairs) << "kind " << static_cast<int>(mask.kind) << " window " << mask.window;
  }
}

TEST(AttentionMask, VisibleKeysOfATileAreThoseOfItsQueries) {
  for (const AttentionMask& mask : kMasks) {
    const int64_t size = mask.kind == Attention::block_sparse ? mask.window : 8;
    for (int64_t first = 0; first < mask.seq; first += size) {
      const Interval tile{first, std::min(first + size, mask.seq)};
      std::set<int64_t> expected, found;
      for (int64_t i = tile.first; i < tile.last; ++i) {
        for (int64_t j = 0; j < mask.seq; ++j) {
          if (by_definition(mask, i, j)) expected.insert(j);
        }
      }
      int64_t end = -1;
      for (const Interval& keys : visible_keys(mask, tile)) {
        EXPECT_GT(keys.first, end) << "not disjoint, or neighbours not joined";
        for (int64_t j = keys.first; j < keys.last; ++j) found.insert(j);
        end = keys.last;
      }
      EXPECT_EQ(found, expected) << "kind " << static_cast<int>(mask.kind) << " window " << mask.window;
    }
  }
}

TEST(AttentionMask, RanksHoldEveryPositionOnce) {
  for (const Attention kind : {Attention::dense, Attention::sliding_window, Attention::block_sparse}) {
    for (const int64_t ranks : {1, 2, 4, 8}) {
      std::multiset<int64_t> held;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        int64_t count = 0;
        for (const Interval& part : context_parallel_ranges(kind, 64, rank, ranks)) {
          for (int64_t i = part.first; i < part.last; ++i) held.insert(i);
          count += part.size();
        }
        EXPECT_EQ(count, 64 / ranks);
      }
      EXPECT_EQ(held.size(), 64u);
      EXPECT_EQ(std::set<int64_t>(held.begin(), held.end()).size(), 64u);
    }
  }
}

TEST(AttentionMask, FlopsPerTokenFollowTheVisiblePairs) {
  Model model;
  model.seq_length = 1024;
  const double dense = flops_per_token(model);
  model.attention = Attention::sliding_window;
  model.attention_window = 128;
  // 128 keys a query, but for the first 127, which see 64 on average: (1024 · 128 − 128 · 127 / 2) / 1024.
  const double keys = (1024.0 * 128 - 128.0 * 127 / 2) / 1024;
  EXPECT_DOUBLE_EQ(dense - flops_per_token(model), 12.0 * 6 * 256 * (512 - keys));
  model.attention_window =
      5000;  // sees everything: the exact count of pairs, half a key a query more than dense's seq/2
  EXPECT_DOUBLE_EQ(flops_per_token(model) - dense, 12.0 * 6 * 256 * 0.5);
}

}  // namespace
}  // namespace taut::config
