// Parallel layers against plain LibTorch ones, and fused operations against their composition.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdio>
#include <mutex>

#include "runtime/comm/collectives.h"
#include "runtime/model/fused.h"
#include "runtime/parallel/flat_parameters.h"
#include "runtime/parallel/tensor_parallel.h"
#include "taut.h"
#include "tests/runtime/thread_ranks.h"

namespace taut::parallel {
namespace {

// Sums of a few hundred fp32 products of size 1, in another order.
constexpr double kTolerance = 2e-5;

/// The largest difference seen over all threads; prints it at its end.
class LargestError {
 public:
  explicit LargestError(const char* what) : what_(what) {}
  ~LargestError() { std::printf("%s: largest error %.1e\n", what_, error_); }
  void add(const at::Tensor& a, const at::Tensor& b) {
    const std::lock_guard lock(mutex_);
    error_ = a.sizes() == b.sizes() ? std::max(error_, (a - b).abs().max().item<double>()) : INFINITY;
  }
  double value() const { return error_; }

 private:
  const char* what_;
  std::mutex mutex_;
  double error_ = 0;
};

at::Tensor random(std::vector<int64_t> shape, uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed));
}

at::Tensor leaf(const at::Tensor& value) {
  return value.clone().requires_grad_();
}

TEST(TensorParallel, ColumnAndRowPairIsThePlainPair) {
  const at::Tensor x0 = random({2, 5, 16}, 1), up0 = random({24, 16}, 2), down0 = random({16, 24}, 3);
  const at::Tensor x = leaf(x0), up = leaf(up0), down = leaf(down0);
  const at::Tensor expected = at::linear(at::relu(at::linear(x, up)), down);
  expected.square().sum().backward();
  const Shard rows{0, {24}}, columns{1, {24}};
  for (const bool gather : {false, true}) {
    for (const int ranks : {2, 3}) {
      LargestError error(gather ? "column/row pair, gathered" : "column/row pair");
      testing::run_ranks(ranks, [&](comm::Group& group) {
        TensorParallel tp{&group, gather};
        const at::Tensor my_x = leaf(x0), my_up = leaf(take_shard(up0, rows, group.rank(), ranks)),
                         my_down = leaf(take_shard(down0, columns, group.rank(), ranks));
        ColumnParallelLinear first("up", my_up, tp);
        const RowParallelLinear second(my_down, tp);
        const at::Tensor y = second.forward(at::relu(first.forward(my_x)));
        y.square().sum().backward();
        error.add(y, expected);
        error.add(my_x.grad() / expected.abs().max(), x.grad() / expected.abs().max());
        const at::Tensor scale = up.grad().abs().max();
        error.add(my_up.grad() / scale, take_shard(up.grad(), rows, group.rank(), ranks) / scale);
        error.add(my_down.grad() / scale, take_shard(down.grad(), columns, group.rank(), ranks) / scale);
      });
      EXPECT_LE(error.value(), 1e-4);  // the products reach 100
    }
  }
}

TEST(TensorParallel, SequenceParallelPairIsThePlainPairWhateverTheChunks) {
  // The gather goes by samples, by stretches of the one sample (uneven, too), or in one piece.
  for (const auto& [batch, length] : {std::pair<int64_t, int64_t>{3, 300}, {5, 600}, {1, 1200}, {1, 1206}, {2, 6}}) {
    const at::Tensor x0 = random({batch, length, 16}, 1), up0 = random({24, 16}, 2), down0 = random({16, 24}, 3);
    const at::Tensor x = leaf(x0), up = leaf(up0), down = leaf(down0);
    const at::Tensor expected = at::linear(at::relu(at::linear(x, up)), down);
    expected.square().sum().backward();
    const Shard rows{0, {24}}, columns{1, {24}};
    for (const int ranks : {2, 3}) {
      LargestError error("sequence-parallel pair");
      testing::run_ranks(ranks, [&](comm::Group& group) {
        TensorParallel tp{&group, false, /*sequence_parallel=*/true};
        const auto own = [&](const at::Tensor& whole) { return whole.chunk(ranks, 1)[group.rank()]; };
        const at::Tensor my_x = leaf(own(x0)), my_up = leaf(take_shard(up0, rows, group.rank(), ranks)),
                         my_down = leaf(take_shard(down0, columns, group.rank(), ranks));
        ColumnParallelLinear first("up", my_up, tp);
        const RowParallelLinear second(my_down, tp);
        const at::Tensor y = second.forward(at::relu(first.forward(my_x)));
        y.square().sum().backward();
        error.add(y, own(expected));
        error.add(my_x.grad() / expected.abs().max(), own(x.grad()) / expected.abs().max());
        const at::Tensor scale = up.grad().abs().max();
        error.add(my_up.grad() / scale, take_shard(up.grad(), rows, group.rank(), ranks) / scale);
        error.add(my_down.grad() / scale, take_shard(down.grad(), columns, group.rank(), ranks) / scale);
      });
      EXPECT_LE(error.value(), 1e-4) << batch << " × " << length;
    }
  }
}

TEST(TensorParallel, EmbeddingAndCrossEntropyAreThePlainOnesWhateverTheVocabulary) {
  for (const int64_t vocab : {64, 65, 5}) {  // 65 and 5 are padded
    const at::Tensor weight0 = random({vocab, 8}, 4);
    const at::Tensor tokens = at::arange(12).remainder(vocab).view({2, 6}),
                     labels = (tokens.flatten() * 3).remainder(vocab);
    const at::Tensor weight = leaf(weight0);
    const at::Tensor hidden = at::embedding(weight, tokens);
    const at::Tensor expected = at::cross_entropy_loss(at::linear(hidden.flatten(0, 1), weight), labels);
    expected.backward();
    const Shard rows{0, {vocab}};
    for (const int ranks : {2, 4}) {
      LargestError error("vocabulary-parallel embedding and cross-entropy");
      testing::run_ranks(ranks, [&](comm::Group& group) {
        TensorParallel tp{&group, false};
        const at::Tensor mine = leaf(take_shard(weight0, rows, group.rank(), ranks));
        ColumnParallelLinear head("head", mine, tp);
        const at::Tensor my_hidden = vocab_parallel_embedding(mine, tokens, tp);
        const at::Tensor loss =
            vocab_parallel_cross_entropy(head.forward(my_hidden.flatten(0, 1)), labels, vocab, tp).mean();
        loss.backward();
        error.add(my_hidden, hidden);
        error.add(loss, expected);
        error.add(mine.grad(), take_shard(weight.grad(), rows, group.rank(), ranks));
      });
      EXPECT_LE(error.value(), kTolerance);
    }
  }
}

TEST(TensorParallel, ShardsTakeTheirPieceOfEveryBlock) {
  const at::Tensor full = at::arange(10).to(at::kFloat).unsqueeze(1);  // blocks of 4, 4 and 2 rows
  const Shard shard{0, {4, 4, 2}};
  EXPECT_TRUE(at::equal(take_shard(full, shard, 1, 2).flatten(), at::tensor({2.f, 3.f, 6.f, 7.f, 9.f})));
  EXPECT_TRUE(at::equal(take_shard(full, {}, 1, 2), full));
}

TEST(Collectives, EachGivesItsDefinition) {
  testing::run_ranks(3, [](comm::Group& group) {
    const float mine = static_cast<float>(group.rank() + 1);
    at::Tensor value = at::full({4}, mine);
    comm::all_reduce(group, value);
    EXPECT_TRUE(at::equal(value, at::full({4}, 6.0f)));
    value.fill_(mine);
    comm::all_reduce(group, value, comm::Reduce::max);
    EXPECT_TRUE(at::equal(value, at::full({4}, 3.0f)));
    at::Tensor gathered = at::empty({3});
    comm::all_gather_into_tensor(group, gathered, at::full({1}, mine));
    EXPECT_TRUE(at::equal(gathered, at::tensor({1.f, 2.f, 3.f})));
    at::Tensor part = at::empty({1});
    comm::reduce_scatter(group, part, at::tensor({1.f, 2.f, 3.f}));
    EXPECT_EQ(part.item<float>(), 3 * mine);
    value.fill_(mine);
    comm::broadcast(group, value, 2);
    EXPECT_EQ(value[0].item<float>(), 3.0f);
    // Around the ring, two messages each way of the same pair: they keep their order.
    const int next = (group.rank() + 1) % 3, before = (group.rank() + 2) % 3;
    at::Tensor first = at::empty({1}), second = at::empty({2});
    auto a = comm::recv_async(group, first, before);
    auto b = comm::recv_async(group, second, before);
    comm::send(group, at::full({1}, mine), next);
    comm::send(group, at::full({2}, -mine), next);
    b.wait();
    a.wait();
    EXPECT_EQ(first.item<float>(), static_cast<float>(before + 1));
    EXPECT_EQ(second[1].item<float>(), -static_cast<float>(before + 1));
    comm::barrier(group);
  });
}

TEST(Collectives, FailureNamesOperationGroupAndPeer) {
  std::string message;
  testing::run_ranks(2, [&](comm::Group& group) {
    if (group.rank() == 1) return;  // leaves: its connections close
    at::Tensor value = at::zeros({4});
    try {
      comm::recv(group, value, 1);
    } catch (const Error& error) {
      message = error.what();
    }
  });
  EXPECT_NE(message.find("recv failed on group tp0 (operation 0, rank 0, peer rank 1)"), std::string::npos) << message;
}

}  // namespace
}  // namespace taut::parallel

namespace taut::model {
namespace {

TEST(FusedOperations, RmsNormIsItsComposition) {
  for (const int64_t width : {7, 16, 100}) {
    const at::Tensor x0 = at::randn({3, 50, width}), w0 = at::rand({width}) + 0.5, dy = at::randn({3, 50, width});
    const at::Tensor x = x0.clone().requires_grad_(), w = w0.clone().requires_grad_();
    const at::Tensor y = rms_norm(x, w, 1e-5, at::kFloat);
    y.backward(dy);
    const at::Tensor xe = x0.clone().requires_grad_(), we = w0.clone().requires_grad_();
    const at::Tensor ye = xe * at::rsqrt(xe.square().mean(-1, true) + 1e-5) * we;
    ye.backward(dy);
    const double error =
        std::max({(y - ye).abs().max().item<double>(), (x.grad() - xe.grad()).abs().max().item<double>(),
                  (w.grad() - we.grad()).abs().max().item<double>()});
    std::printf("rms_norm, width %lld: largest error %.1e\n", static_cast<long long>(width), error);
    EXPECT_LE(error, 5e-5);  // the weight's gradient sums 150 rows
  }
}

// The kernel rounds as a cast does, so that the bits are those of a norm in fp32 whose result is cast.
TEST(FusedOperations, RmsNormInSixteenBitsIsTheNormInFp32Cast) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor x0 = at::randn({3, 50, 100}), w0 = at::rand({100}) + 0.5, dy = at::randn({3, 50, 100}).to(type);
    const at::Tensor x = x0.clone().requires_grad_(), w = w0.clone().requires_grad_();
    const at::Tensor y = rms_norm(x, w, 1e-5, type);
    y.backward(dy);
    const at::Tensor xe = x0.clone().requires_grad_(), we = w0.clone().requires_grad_();
    const at::Tensor ye = rms_norm(xe, we, 1e-5, at::kFloat).to(type);
    ye.backward(dy);
    EXPECT_TRUE(at::equal(y, ye));
    EXPECT_TRUE(at::equal(x.grad(), xe.grad()));
    EXPECT_TRUE(at::equal(w.grad(), we.grad()));
  }
}

TEST(FusedOperations, SplitHeadsIsItsCompositionWithAndWithoutAngles) {
  const int64_t seq = 6, half = 4, heads = 3, groups = 2;
  const at::Tensor angle = at::outer(at::arange(seq).to(at::kFloat), at::rand({half}));
  const at::Tensor packed = at::randn({2, seq, heads + 2 * groups, 2 * half}).requires_grad_();
  for (const bool turns : {true, false}) {
    const at::Tensor cos = turns ? angle.cos() : at::Tensor(), sin = turns ? angle.sin() : at::Tensor();
    const QueryKeyValue split = split_heads(packed, heads, groups, cos, sin);
    const at::Tensor c = (turns ? cos : at::ones({seq, half})).unsqueeze(1),
                     s = (turns ? sin : at::zeros({seq, half})).unsqueeze(1);
    const auto turned = [&](const at::Tensor& x) {
      const auto halves = x.chunk(2, -1);
      return at::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, -1);
    };
    const std::vector<at::Tensor> got{split.query, split.key, split.value},
        expected{turned(packed.narrow(2, 0, heads)), turned(packed.narrow(2, heads, groups)),
                 packed.narrow(2, heads + groups, groups)};
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& part : expected) gradients.push_back(at::randn_like(part));
    gradients[0] = gradients[0].transpose(1, 2).contiguous().transpose(1, 2);  // as attention hands it back
    parallel::LargestError error(turns ? "split heads, turned" : "split heads");
    for (size_t i = 0; i < got.size(); ++i) error.add(got[i], expected[i]);
    error.add(torch::autograd::grad(got, {packed}, gradients)[0],
              torch::autograd::grad(expected, {packed}, gradients)[0]);
    EXPECT_LE(error.value(), 1e-6);
    const QueryKeyValue narrow = split_heads(packed.detach().to(at::kBFloat16), heads, groups, cos, sin);
    EXPECT_EQ(narrow.query.scalar_type(), at::kBFloat16);
    EXPECT_LE((narrow.key.to(at::kFloat) - expected[1].detach()).abs().max().item<double>(), 0.05);  // 8 bits
  }
}

}  // namespace
}  // namespace taut::model
