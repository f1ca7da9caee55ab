#include "runtime/config/attention_mask.h"

#include <algorithm>

namespace taut::config {
namespace {

int64_t blocks(const AttentionMask& mask) {
  return (mask.seq + mask.window - 1) / mask.window;
}

/// Blocks from one summary block to the next: ceil(sqrt(blocks)).
int64_t stride(const AttentionMask& mask) {
  int64_t root = 1;
  while (root * root < blocks(mask)) ++root;
  return root;
}

bool block_sees(int64_t stride, int64_t query_block, int64_t key_block) {
  return key_block <= query_block &&
         (key_block + 1 >= query_block || key_block == 0 || key_block % stride == stride - 1);
}

}  // namespace

AttentionMask attention_mask(const Model& model) {
  return {model.attention, model.attention_window, model.seq_length};
}

bool sees(const AttentionMask& mask, int64_t query, int64_t key) {
  if (key > query) return false;
  if (mask.kind == Attention::sliding_window) return key > query - mask.window;
  if (mask.kind == Attention::block_sparse) {
    return block_sees(stride(mask), query / mask.window, key / mask.window);
  }
  return true;
}

std::vector<Interval> visible_keys(const AttentionMask& mask, Interval queries) {
  if (mask.kind == Attention::dense) return {{0, queries.last}};
  if (mask.kind == Attention::sliding_window) {
    return {{std::max<int64_t>(0, queries.first - mask.window + 1), queries.last}};
  }
  const int64_t step = stride(mask), query_block = queries.first / mask.window;
  std::vector<Interval> keys;
  const auto add = [&](int64_t block) {
    const int64_t first = block * mask.window, last = std::min(first + mask.window, queries.last);
    if (!keys.empty() && keys.back().last >= first) {
      keys.back().last = std::max(keys.back().last, last);
    } else {
      keys.push_back({first, last});
    }
  };
  add(0);
  for (int64_t block = step - 1; block < query_block; block += step) add(block);
  if (query_block > 0) add(query_block - 1);
  add(query_block);
  return keys;
}

int64_t visible_pairs(const AttentionMask& mask) {
  const auto triangle = [](int64_t n) { return n * (n + 1) / 2; };
  if (mask.kind == Attention::dense) return triangle(mask.seq);
  if (mask.kind == Attention::sliding_window) {
    return mask.seq <= mask.window ? triangle(mask.seq)
                                   : triangle(mask.window) + (mask.seq - mask.window) * mask.window;
  }
  int64_t pairs = 0;
  for (int64_t first = 0; first < mask.seq; first += mask.window) {
    const Interval queries{first, std::min(first + mask.window, mask.seq)};
    for (const Interval& keys : visible_keys(mask, queries)) pairs += queries.size() * keys.size();
    pairs -= queries.size() * queries.size() - triangle(queries.size());  // its own block is seen causally
  }
  return pairs;
}

std::vector<Interval> context_parallel_ranges(Attention kind, int64_t seq, int64_t cp_rank, int64_t cp_size) {
  if (cp_size == 1) return {{0, seq}};
  if (kind == Attention::sliding_window) {
    const int64_t chunk = seq / cp_size;
    return {{cp_rank * chunk, (cp_rank + 1) * chunk}};
  }
  const int64_t chunk = seq / (2 * cp_size), late = 2 * cp_size - 1 - cp_rank;
  if (late == cp_rank + 1) return {{cp_rank * chunk, (late + 1) * chunk}};
  return {{cp_rank * chunk, (cp_rank + 1) * chunk}, {late * chunk, (late + 1) * chunk}};
}

}  // namespace taut::config
