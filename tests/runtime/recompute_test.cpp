// Recomputation against the same model without it.
#include "runtime/parallel/recompute.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <vector>

namespace taut::parallel {
namespace {

at::Tensor random(std::vector<int64_t> shape, uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed));
}

/// Two residual layers, each norm -> up -> gelu -> down.
struct TwoLayers {
  std::vector<at::Tensor> weights;
  int calls = 0;

  TwoLayers() {
    for (uint64_t layer = 0; layer < 2; ++layer) {
      weights.push_back(at::ones({16}).requires_grad_());
      weights.push_back((0.2 * random({64, 16}, 2 * layer + 1)).detach().requires_grad_());
      weights.push_back((0.2 * random({16, 64}, 2 * layer + 2)).detach().requires_grad_());
    }
  }
  at::Tensor layer(size_t index, const at::Tensor& x) {
    ++calls;
    const at::Tensor* w = &weights[3 * index];
    return x + at::linear(at::gelu(at::linear(at::layer_norm(x, {16}, w[0]), w[1])), w[2]);
  }
  at::Tensor run(const at::Tensor& input, bool recomputes) {
    at::Tensor x = input;
    for (size_t i = 0; i < 2; ++i) {
      const auto part = [this, i](const at::Tensor& in) { return layer(i, in); };
      x = recomputes ? recompute(part, x) : part(x);
    }
    return x;
  }
};

class Autocast {
 public:
  explicit Autocast(bool enabled) : enabled_(enabled) {
    if (!enabled_) return;
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~Autocast() {
    if (enabled_) at::autocast::set_autocast_enabled(at::kCPU, false);
  }

 private:
  bool enabled_;
};

/// Gradients of the input and of all weights over two accumulated microbatches.
std::vector<at::Tensor> gradients(bool recomputes, bool bf16, bool input_needs_gradient = true) {
  TwoLayers model;
  std::vector<at::Tensor> result;
  for (uint64_t microbatch = 0; microbatch < 2; ++microbatch) {
    at::Tensor input = random({2, 5, 16}, 100 + microbatch);
    input.requires_grad_(input_needs_gradient);
    at::Tensor output;
    {
      const Autocast autocast(bf16);
      output = model.run(input, recomputes);
    }
    output.square().sum().backward();
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU)) << "backward left autocast as it found it";
    if (input_needs_gradient) result.push_back(input.grad());
  }
  at::autocast::clear_cache();
  EXPECT_EQ(model.calls, recomputes ? 8 : 4);
  for (const at::Tensor& weight : model.weights) result.push_back(weight.grad());
  return result;
}

TEST(Recompute, GradientsAreBitEqual) {
  for (const bool bf16 : {false, true}) {
    for (const bool input_needs_gradient : {true, false}) {
      const auto expected = gradients(false, bf16, input_needs_gradient);
      const auto got = gradients(true, bf16, input_needs_gradient);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_TRUE(got[i].defined()) << i << (bf16 ? " bf16" : " fp32");
        EXPECT_GT(expected[i].abs().max().item<double>(), 0) << i;
        EXPECT_TRUE(at::equal(got[i], expected[i])) << i << (bf16 ? " bf16" : " fp32");
      }
    }
  }
  // The comparison can fail: bf16 products differ from fp32 ones.
  EXPECT_FALSE(at::equal(gradients(true, true).back(), gradients(false, false).back()));
}

TEST(Recompute, NestedCallsGiveTheSameGradients) {
  TwoLayers plain, nested;
  const at::Tensor a = random({3, 16}, 7).requires_grad_(), b = a.detach().clone().requires_grad_();
  plain.run(a, false).sum().backward();
  recompute([&](const at::Tensor& x) { return nested.run(x, true); }, b).sum().backward();
  EXPECT_TRUE(at::equal(a.grad(), b.grad()));
  for (size_t i = 0; i < plain.weights.size(); ++i) {
    EXPECT_TRUE(at::equal(plain.weights[i].grad(), nested.weights[i].grad())) << i;
  }
}

struct CountCalls : torch::autograd::PostAccumulateGradHook {
  explicit CountCalls(int& calls) : calls(calls) {}
  void operator()(const torch::autograd::Variable& leaf) override { calls += leaf.grad().defined(); }
  int& calls;
};

TEST(Recompute, LeavesRunTheirHooksOncePerBackward) {
  TwoLayers model;
  int calls = 0;
  for (const at::Tensor& weight : model.weights) {
    torch::autograd::impl::set_post_acc_grad_hooks(weight, std::make_unique<CountCalls>(calls));
  }
  const at::Tensor output = model.run(random({3, 16}, 7).requires_grad_(), true);
  EXPECT_EQ(calls, 0);
  output.sum().backward();
  EXPECT_EQ(calls, 6);
}

/// Bytes allocated and not freed since it was made, on this thread.
class LiveBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override { live += bytes; }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t live = 0;
};

int64_t bytes_kept(bool recomputes) {
  TwoLayers model;
  const at::Tensor input = random({64, 16}, 7).requires_grad_();
  const auto count = std::make_shared<LiveBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, count);
  const at::Tensor output = model.run(input, recomputes);
  return count->live;
}

TEST(Recompute, KeepsTheLayersInputsAlone) {
  constexpr int64_t kHidden = 64 * 16 * 4;   // bytes of one [64, 16] fp32 tensor
  EXPECT_EQ(bytes_kept(true), 2 * kHidden);  // the second layer's input and the output
  EXPECT_GT(bytes_kept(false), 10 * kHidden);
}

TEST(Recompute, WithoutGradModeItIsTheFunction) {
  TwoLayers model;
  const at::NoGradGuard no_grad;
  const at::Tensor input = random({3, 16}, 7);
  const at::Tensor output = model.run(input, true);
  EXPECT_FALSE(output.requires_grad());
  EXPECT_TRUE(at::equal(output, model.run(input, false)));
  EXPECT_EQ(model.calls, 4);
}

}  // namespace
}  // namespace taut::parallel
