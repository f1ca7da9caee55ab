// Attention in pieces and over ranks against softmax(q kᵀ / sqrt(d) + mask) v, written out in double on one rank.
#include "runtime/model/attention.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <mutex>

#include "runtime/model/attention_block.h"
#include "runtime/parallel/context_parallel.h"
#include "taut.h"
#include "tests/runtime/thread_ranks.h"

namespace taut::model {
namespace {

using config::Attention;

const char* name_of(Attention kind) {
  return kind == Attention::dense ? "dense" : kind == Attention::sliding_window ? "sliding window" : "block-sparse";
}

at::Tensor random(std::vector<int64_t> shape, uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble);
}

/// [seq, seq], true where the row's position sees the column's; the masks' definitions in tensor operations.
at::Tensor visible(Attention kind, int64_t window, int64_t seq) {
  const at::Tensor i = at::arange(seq).unsqueeze(1), j = at::arange(seq).unsqueeze(0);
  const at::Tensor causal = j <= i;
  if (kind == Attention::dense) return causal;
  if (kind == Attention::sliding_window) return causal.logical_and(i - j < window);
  const int64_t stride = static_cast<int64_t>(std::ceil(std::sqrt(std::ceil(static_cast<double>(seq) / window))));
  const at::Tensor query_block = i.div(window, "floor"), key_block = j.div(window, "floor");
  const at::Tensor sink = key_block == 0, near = query_block - key_block <= 1;
  const at::Tensor summary = key_block.remainder(stride) == stride - 1;
  return causal.logical_and(sink.logical_or(near).logical_or(summary));
}

struct Case {
  Attention kind;
  int64_t window, seq, heads, groups, head_dim = 16, batch = 2;
};

/// Inputs in double, and what the written-out attention makes of them.
struct Reference {
  Reference(const Case& c, const at::Tensor& mask)
      : query(random({c.batch, c.seq, c.heads, c.head_dim}, 1).requires_grad_()),
        key(random({c.batch, c.seq, c.groups, c.head_dim}, 2).requires_grad_()),
        value(random({c.batch, c.seq, c.groups, c.head_dim}, 3).requires_grad_()),
        output_gradient(random({c.batch, c.seq, c.heads * c.head_dim}, 4)) {
    const auto heads_first = [&](const at::Tensor& t) {
      return t.transpose(1, 2).repeat_interleave(c.heads / t.size(2), 1);
    };
    const at::Tensor scores = at::matmul(heads_first(query), heads_first(key).transpose(2, 3)) / std::sqrt(c.head_dim);
    const at::Tensor weights = scores.masked_fill(mask.logical_not(), -INFINITY).softmax(-1);
    output = at::matmul(weights, heads_first(value)).transpose(1, 2).flatten(2, 3);
    output.backward(output_gradient);
  }
  at::Tensor query, key, value, output_gradient, output;
};

struct Errors {
  double output = 0, query = 0, key = 0, value = 0;
  double largest() const { return std::max({output, query, key, value}); }
};

/// The largest difference relative to the largest expected value (absolute where all that is expected is 0).
double difference(const at::Tensor& a, const at::Tensor& b) {
  const double error = (a - b).abs().max().item<double>(), scale = b.abs().max().item<double>();
  return scale > 0 ? error / scale : error;
}

/// The largest errors of attention() over `ranks` ranks in `type`, relative to the largest expected value.
Errors errors_of(const Case& c, const Reference& reference, int ranks, at::ScalarType type) {
  Errors errors;
  std::mutex mutex;
  testing::run_ranks(ranks, [&](comm::Group& group) {
    const auto mine = [&](const at::Tensor& full) {
      return parallel::take_sequence(full.detach(), 1, group.rank(), ranks, c.kind);
    };
    const auto leaf = [&](const at::Tensor& full) { return mine(full).to(type).clone().requires_grad_(); };
    const at::Tensor query = leaf(reference.query), key = leaf(reference.key), value = leaf(reference.value);
    const at::Tensor output = attention(query, key, value, {c.kind, c.window}, &group);
    EXPECT_EQ(output.scalar_type(), type);
    output.backward(mine(reference.output_gradient).to(type));
    const std::lock_guard lock(mutex);
    errors.output = std::max(errors.output, difference(output, mine(reference.output)));
    errors.query = std::max(errors.query, difference(query.grad(), mine(reference.query.grad())));
    errors.key = std::max(errors.key, difference(key.grad(), mine(reference.key.grad())));
    errors.value = std::max(errors.value, difference(value.grad(), mine(reference.value.grad())));
  });
  return errors;
}

void print(const Case& c, int ranks, const char* type, const Errors& errors) {
  std::printf(
      "%-14s window %3lld, seq %3lld, %lld heads in %lld groups, cp %d, %s: output %.1e, gradients of query "
      "%.1e, key %.1e, value %.1e\n",
      name_of(c.kind), static_cast<long long>(c.window), static_cast<long long>(c.seq), static_cast<long long>(c.heads),
      static_cast<long long>(c.groups), ranks, type, errors.output, errors.query, errors.key, errors.value);
}

const Case kCases[] = {
    {Attention::dense, 0, 96, 4, 4},
    {Attention::dense, 0, 88, 6, 2},
    {Attention::sliding_window, 1, 64, 4, 4},       // only itself
    {Attention::sliding_window, 7, 80, 6, 3},       // far below a tile
    {Attention::sliding_window, 33, 160, 4, 1},     // crosses a rank's start, not a rank
    {Attention::sliding_window, 101, 240, 4, 2},    // over several ranks, and tiles of 64 in chunks of 60
    {Attention::sliding_window, 500, 96, 2, 2},     // longer than the sequence: dense
    {Attention::block_sparse, 8, 160, 4, 2},        // 20 blocks, stride 5
    {Attention::block_sparse, 13, 176, 6, 2},       // blocks that no chunk's end respects, a short last one
    {Attention::block_sparse, 16, 64, 4, 4, 8, 1},  // 4 blocks, stride 2
    {Attention::block_sparse, 200, 96, 2, 1},       // one block: dense
};

TEST(Attention, IsTheDenseReferenceOnEveryMaskAndNumberOfRanks) {
  for (const Case& c : kCases) {
    const Reference reference(c, visible(c.kind, c.window, c.seq));
    for (const int ranks : {1, 2, 4}) {
      const Errors errors = errors_of(c, reference, ranks, at::kFloat);
      print(c, ranks, "fp32", errors);
      EXPECT_LE(errors.largest(), 1e-5);  // sums of at most 240 fp32 products of size 1
    }
  }
}

TEST(Attention, IsExactInDouble) {
  for (const Case& c : {kCases[1], kCases[5], kCases[8]}) {
    const Reference reference(c, visible(c.kind, c.window, c.seq));
    const Errors errors = errors_of(c, reference, 4, at::kDouble);
    print(c, 4, "fp64", errors);
    EXPECT_LE(errors.largest(), 1e-13);
  }
}

TEST(Attention, HalfPrecisionLosesItsOwnBitsOnly) {
  for (const Case& c : {kCases[1], kCases[4], kCases[8]}) {
    const Reference reference(c, visible(c.kind, c.window, c.seq));
    for (const int ranks : {1, 2, 4}) {
      const Errors bf16 = errors_of(c, reference, ranks, at::kBFloat16);
      print(c, ranks, "bf16", bf16);
      EXPECT_LE(bf16.largest(), 0.03);  // 8 bits of mantissa: inputs, output and gradients are each rounded by 0.4 %
      const Errors fp16 = errors_of(c, reference, ranks, at::kHalf);
      print(c, ranks, "fp16", fp16);
      EXPECT_LE(fp16.largest(), 0.004);  // 11 bits
    }
  }
}

TEST(Attention, LayersInARowKeepTheirMessagesApart) {
  const AttentionShape layers[] = {{Attention::dense, 0}, {Attention::block_sparse, 8}, {Attention::dense, 0}};
  // Each layer's queries are the output of the one before; only dense and block-sparse divide the sequence alike.
  const auto run = [&](const at::Tensor& query, const at::Tensor& key, comm::Group* group) {
    at::Tensor x = query;
    for (const AttentionShape& layer : layers) {
      x = attention(x, key, key.sin(), layer, group).unflatten(2, {query.size(2), query.size(3)}) * 3;
    }
    return x;
  };
  const at::Tensor query0 = random({1, 64, 4, 8}, 12), key0 = random({1, 64, 2, 8}, 13);
  const at::Tensor query = query0.clone().requires_grad_(), key = key0.clone().requires_grad_();
  const at::Tensor expected = run(query, key, nullptr);
  expected.sin().sum().backward();
  for (const int ranks : {2, 4}) {
    double error = 0;
    std::mutex mutex;
    testing::run_ranks(ranks, [&](comm::Group& group) {
      const auto mine = [&](const at::Tensor& full) {
        return parallel::take_sequence(full.detach(), 1, group.rank(), ranks, Attention::dense);
      };
      const at::Tensor my_query = mine(query0).requires_grad_(), my_key = mine(key0).requires_grad_();
      for (int microbatch = 0; microbatch < 2; ++microbatch) {
        my_query.mutable_grad() = my_key.mutable_grad() = at::Tensor();
        const at::Tensor output = run(my_query, my_key, &group);
        output.sin().sum().backward();
        const std::lock_guard lock(mutex);
        error = std::max({error, difference(output, mine(expected)), difference(my_query.grad(), mine(query.grad())),
                          difference(my_key.grad(), mine(key.grad()))});
      }
    });
    std::printf("three layers, cp %d, fp64: largest error %.1e\n", ranks, error);
    EXPECT_LE(error, 1e-12);
  }
}

// Controls: the comparison above must notice a mask that is off by one key, and partial outputs merged by halves.
TEST(Attention, ComparisonNoticesAWrongMask) {
  for (const Case& c : {kCases[4], kCases[7]}) {
    const Reference reference(c, visible(c.kind, c.window + 1, c.seq));
    const Errors errors = errors_of(c, reference, 2, at::kFloat);
    print(c, 2, "fp32, wrong mask", errors);
    EXPECT_GT(errors.output, 1e-3);
    EXPECT_GT(errors.key, 1e-3);
  }
}

TEST(AttentionBlock, MergeByLogSumExpIsTheWholeAndByHalvesIsNot) {
  const at::Tensor query = random({2, 3, 20, 8}, 5), key = random({2, 3, 50, 8}, 6), value = random({2, 3, 50, 8}, 7);
  const BlockMask all;
  const BlockOutput whole = block_forward(BlockKernel::plain, query, key, value, all);
  const auto part = [&](int64_t first, int64_t count) {
    return block_forward(BlockKernel::plain, query, key.narrow(2, first, count), value.narrow(2, first, count), all);
  };
  const BlockOutput first = part(0, 20), second = part(20, 30);
  const at::Tensor by_halves = (first.output + second.output) / 2;
  merge_block(first.output, first.log_sum_exp, second);
  EXPECT_LE(difference(first.output, whole.output), 1e-14);
  EXPECT_LE(difference(first.log_sum_exp, whole.log_sum_exp), 1e-14);
  EXPECT_GT(difference(by_halves, whole.output), 1e-2);
}

TEST(AttentionBlock, MergeBearsScoresBeyondTheRangeOfExp) {
  const at::Tensor output = at::zeros({1, 1, 2, 1}), log_sum_exp = at::tensor({500.f, -500.f}).view({1, 1, 2});
  merge_block(output, log_sum_exp, {at::ones({1, 1, 2, 1}), at::zeros({1, 1, 2})});
  EXPECT_TRUE(at::equal(output.flatten(), at::tensor({0.f, 1.f})));
  EXPECT_TRUE(at::equal(log_sum_exp.flatten(), at::tensor({500.f, 0.f})));
}

TEST(AttentionBlock, PlainAndFlashKernelsAgreeOnEveryMask) {
  const int64_t queries = 40;
  for (const int64_t keys : {40, 70}) {
    const at::Tensor query = random({2, 40, 4, 16}, 8).transpose(1, 2),
                     key = random({2, keys, 2, 16}, 9).transpose(1, 2),
                     value = random({2, keys, 2, 16}, 10).transpose(1, 2), gradient = random({2, 4, 40, 16}, 11);
    std::vector<BlockMask> masks(1);
    masks.push_back({false, false, band_bias(queries, keys, 3 - queries, 4, query.options())});
    if (keys == queries) masks.push_back({false, true, {}});
    for (const BlockMask& mask : masks) {
      const auto plain = block_forward(BlockKernel::plain, query, key, value, mask);
      const auto flash = block_forward(BlockKernel::cpu_flash, query, key, value, mask);
      EXPECT_LE(difference(plain.output, flash.output), 1e-13);
      EXPECT_LE(difference(plain.log_sum_exp, flash.log_sum_exp), 1e-13);
      const auto back = [&](BlockKernel kernel) {
        return block_backward(kernel, gradient, query, key, value, flash.output, flash.log_sum_exp, mask);
      };
      const BlockGradients a = back(BlockKernel::plain), b = back(BlockKernel::cpu_flash);
      EXPECT_LE(difference(a.query, b.query), 1e-12);
      EXPECT_LE(difference(a.key, b.key), 1e-12);
      EXPECT_LE(difference(a.value, b.value), 1e-12);
    }
  }
}

TEST(ContextParallel, ZigZagPairsEarlyAndLateChunksAndWindowsTakeChunksInOrder) {
  const at::Tensor sequence = at::arange(16);
  const auto of = [&](int rank, Attention kind) { return parallel::local_positions(16, rank, 4, kind); };
  EXPECT_TRUE(at::equal(of(0, Attention::dense), at::tensor({0, 1, 14, 15}, at::kLong)));
  EXPECT_TRUE(at::equal(of(2, Attention::block_sparse), at::tensor({4, 5, 10, 11}, at::kLong)));
  EXPECT_TRUE(at::equal(of(3, Attention::dense), at::tensor({6, 7, 8, 9}, at::kLong)));
  EXPECT_TRUE(at::equal(of(2, Attention::sliding_window), at::tensor({8, 9, 10, 11}, at::kLong)));
  const at::Tensor batch = at::stack({sequence, sequence * 2}),
                   part = parallel::take_sequence(batch, 1, 1, 4, Attention::dense);
  EXPECT_TRUE(at::equal(part, batch.index_select(1, of(1, Attention::dense))));
  EXPECT_TRUE(part.is_contiguous());
}

TEST(ContextParallel, SequenceThatCannotBeCutEvenlyIsRefused) {
  EXPECT_THROW(parallel::local_positions(20, 0, 4, Attention::dense), Error);
  EXPECT_EQ(parallel::local_positions(20, 0, 4, Attention::sliding_window).size(0), 5);
  EXPECT_EQ(parallel::local_positions(21, 0, 1, Attention::dense).size(0), 21);
}

}  // namespace
}  // namespace taut::model
