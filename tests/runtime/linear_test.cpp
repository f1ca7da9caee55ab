// Deferred weight gradients against those of at::linear.
#include "runtime/parallel/linear.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <optional>

#include "taut.h"

namespace taut::parallel {
namespace {

at::Tensor random(std::vector<int64_t> shape, uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed));
}

class Autocast {
 public:
  explicit Autocast(std::optional<at::ScalarType> dtype) : enabled_(dtype) {
    if (!enabled_) return;
    at::autocast::set_autocast_dtype(at::kCPU, *dtype);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~Autocast() {
    if (enabled_) at::autocast::set_autocast_enabled(at::kCPU, false);
  }

 private:
  bool enabled_;
};

/// Two linear layers with a norm between them; all that a test compares.
struct Model {
  at::Tensor up = random({48, 16}, 1).requires_grad_(), down = random({16, 48}, 2).requires_grad_(),
             norm = at::ones({16}).requires_grad_();

  std::vector<at::Tensor> leaves() const { return {up, down, norm}; }
  template <class Linear>
  at::Tensor forward(const at::Tensor& x, Linear apply) const {
    return apply(at::gelu(apply(at::layer_norm(x, {16}, norm), up)), down);
  }
};

constexpr auto kPlain = [](const at::Tensor& x, const at::Tensor& w) { return at::linear(x, w); };

struct Result {
  std::vector<at::Tensor> outputs, input_gradients, leaf_gradients;
};

/// Microbatches accumulate; deferred, W of the first runs after B of the second.
Result train(bool defers, std::optional<at::ScalarType> dtype, std::vector<int64_t> shape) {
  Model model;
  DeferredWeightGradients queue;
  Result result;
  for (int m = 0; m < 2; ++m) {
    const at::Tensor input = random(shape, 10 + m).requires_grad_();
    at::Tensor output;
    {
      const Autocast autocast(dtype);
      std::optional<DeferredWeightGradients::Scope> scope;
      if (defers) scope.emplace(queue);
      output = defers ? model.forward(input, parallel::linear) : model.forward(input, kPlain);
    }
    output.backward(random(output.sizes().vec(), 20 + m).to(output.scalar_type()));
    if (defers) queue.finish_backward(0, m);
    result.outputs.push_back(output.detach());
    result.input_gradients.push_back(input.grad());
  }
  if (defers) {
    queue.run(0, 0);
    queue.run(0, 1);
  }
  at::autocast::clear_cache();
  for (const at::Tensor& leaf : model.leaves()) result.leaf_gradients.push_back(leaf.grad());
  return result;
}

TEST(DeferredWeightGradients, AreBitEqualToThoseOfLinear) {
  const std::optional<at::ScalarType> dtypes[] = {std::nullopt, at::kBFloat16, at::kHalf};
  for (const auto& dtype : dtypes) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2, 5, 16}, {7, 16}, {1, 1, 16}}) {
      const Result expected = train(false, dtype, shape), got = train(true, dtype, shape);
      const auto expect_equal = [&](const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                                    const char* what) {
        for (size_t i = 0; i < a.size(); ++i) {
          ASSERT_TRUE(a[i].defined() && b[i].defined()) << what << " " << i;
          EXPECT_EQ(a[i].scalar_type(), b[i].scalar_type()) << what << " " << i;
          EXPECT_GT(a[i].abs().max().item<double>(), 0) << what << " " << i;
          EXPECT_TRUE(at::equal(a[i], b[i]))
              << what << " " << i << ", dtype " << (dtype ? at::toString(*dtype) : "fp32") << ", largest error "
              << (a[i] - b[i]).abs().max().item<double>();
        }
      };
      expect_equal(expected.outputs, got.outputs, "output");
      expect_equal(expected.input_gradients, got.input_gradients, "input gradient");
      expect_equal(expected.leaf_gradients, got.leaf_gradients, "leaf gradient");
    }
  }
}

struct CountCalls : torch::autograd::PostAccumulateGradHook {
  explicit CountCalls(int& calls) : calls(calls) {}
  void operator()(const torch::autograd::Variable&) override { ++calls; }
  int& calls;
};

TEST(DeferredWeightGradients, AppearInTheirOwnPassOnly) {
  Model model;
  DeferredWeightGradients queue;
  int up_calls = 0, norm_calls = 0;
  torch::autograd::impl::set_post_acc_grad_hooks(model.up, std::make_unique<CountCalls>(up_calls));
  torch::autograd::impl::set_post_acc_grad_hooks(model.norm, std::make_unique<CountCalls>(norm_calls));
  const at::Tensor input = random({4, 16}, 3).requires_grad_();
  at::Tensor output;
  {
    const DeferredWeightGradients::Scope scope(queue);
    output = model.forward(input, parallel::linear);
  }
  EXPECT_EQ(queue.bytes(), 0);
  output.sum().backward();
  queue.finish_backward(1, 7);
  EXPECT_TRUE(input.grad().defined()) << "the stage before need not wait";
  EXPECT_TRUE(model.norm.grad().defined());
  EXPECT_EQ(norm_calls, 1);
  EXPECT_FALSE(model.up.grad().defined());
  EXPECT_EQ(up_calls, 0);
  EXPECT_EQ(queue.bytes(), 4 * (16 + 48 + 48 + 16) * 4);
  queue.run(1, 7);
  EXPECT_TRUE(model.up.grad().defined());
  EXPECT_EQ(up_calls, 1);
  EXPECT_EQ(queue.bytes(), 0);
}

TEST(DeferredWeightGradients, AWeightUsedTwiceRunsItsHookOnceAtItsEnd) {
  const at::Tensor weight = random({16, 16}, 4).requires_grad_(), other = weight.detach().clone().requires_grad_();
  DeferredWeightGradients queue;
  int calls = 0;
  torch::autograd::impl::set_post_acc_grad_hooks(weight, std::make_unique<CountCalls>(calls));
  const at::Tensor input = random({3, 16}, 5).requires_grad_();
  at::Tensor output;
  {
    const DeferredWeightGradients::Scope scope(queue);
    output = parallel::linear(parallel::linear(input, weight), weight);
  }
  output.sum().backward();
  at::linear(at::linear(input, other), other).sum().backward();
  queue.finish_backward(0, 0);
  queue.run(0, 0);
  EXPECT_EQ(calls, 1);
  const double error = (weight.grad() - other.grad()).abs().max().item<double>();
  std::printf("weight used twice: largest error %.1e\n", error);
  EXPECT_LE(error, 1e-4);  // the two products are added in another order
}

TEST(DeferredWeightGradients, WithoutAScopeOrAnInputGradientNothingIsDeferred) {
  Model model;
  DeferredWeightGradients queue;
  at::Tensor output = model.forward(random({4, 16}, 3).requires_grad_(), parallel::linear);
  output.sum().backward();
  EXPECT_TRUE(model.up.grad().defined());
  {
    const DeferredWeightGradients::Scope scope(queue);
    const at::Tensor weight = random({8, 16}, 6).requires_grad_();
    parallel::linear(random({4, 16}, 3), weight).sum().backward();
    EXPECT_TRUE(weight.grad().defined()) << "nobody else would compute it";
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(parallel::linear(random({4, 16}, 3).requires_grad_(), weight).requires_grad());
  }
  EXPECT_EQ(queue.bytes(), 0);
  EXPECT_THROW(queue.run(0, 0), Error);
}

}  // namespace
}  // namespace taut::parallel
