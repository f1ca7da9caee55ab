// LibTorch's AdamW is the oracle for every twin of the kernel.
#include "kernels/adamw.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdio>
#include <functional>

namespace taut::kernels {
namespace {

using Kernel = std::function<void(float*, const float*, float*, float*, int64_t, const AdamWStep&)>;

/// Ten updates by the kernel and by LibTorch on the same gradients; returns the largest difference of a parameter.
double largest_difference(const Kernel& kernel, at::Device device, int64_t count) {
  constexpr double kLr = 1e-2, kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-8, kDecay = 0.1, kScale = 0.5;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
  const at::Tensor start = at::randn({count}, generator);
  at::Tensor oracle = start.clone().requires_grad_();
  torch::optim::AdamW adamw({oracle},
                            torch::optim::AdamWOptions(kLr).betas({kBeta1, kBeta2}).eps(kEps).weight_decay(kDecay));
  at::Tensor parameter = start.to(device).clone();
  const at::Tensor moment1 = at::zeros_like(parameter), moment2 = at::zeros_like(parameter);
  for (int step = 1; step <= 10; ++step) {
    const at::Tensor gradient = at::randn({count}, generator) * 0.1;
    oracle.mutable_grad() = gradient * kScale;
    adamw.step();
    const at::Tensor on_device = gradient.to(device);
    kernel(parameter.data_ptr<float>(), on_device.const_data_ptr<float>(), moment1.data_ptr<float>(),
           moment2.data_ptr<float>(), count, {kLr, kBeta1, kBeta2, kEps, kDecay, kScale, step});
  }
  return (parameter.cpu() - oracle.detach()).abs().max().item<double>();
}

// Parameters of size 1 after ten steps of 1e-2: rounding of each step is 1e-7.
constexpr double kTolerance = 2e-6;

TEST(AdamWKernel, EveryCpuInstructionSetAgreesWithLibTorch) {
  for (const InstructionSet set : supported_instruction_sets()) {
    for (const int64_t count : {1, 15, 16, 1000, 4099}) {
      const double difference = largest_difference([set](float* p, const float* g, float* m, float* v, int64_t n,
                                                         const AdamWStep& s) { adamw_cpu_with(set, p, g, m, v, n, s); },
                                                   at::kCPU, count);
      std::printf("instruction set %d, %lld elements: largest error %.1e\n", static_cast<int>(set),
                  static_cast<long long>(count), difference);
      EXPECT_LE(difference, kTolerance);
    }
  }
}

TEST(AdamWKernel, TheDispatcherTakesOneOfThem) {
  EXPECT_LE(largest_difference([](auto... a) { adamw_cpu(a...); }, at::kCPU, 257), kTolerance);
}

TEST(AdamWKernel, CudaTwinAgreesWithLibTorch) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const double difference = largest_difference([](auto... a) { adamw_cuda(a...); }, at::Device(at::kCUDA, 0), 100003);
  std::printf("CUDA: largest error %.1e\n", difference);
  EXPECT_LE(difference, kTolerance);
}

TEST(AdamWKernel, TouchesNothingBeyondItsCount) {
  std::vector<float> p(20, 1.0f), g(20, 1.0f), m(20, 0.0f), v(20, 0.0f);
  adamw_cpu(p.data(), g.data(), m.data(), v.data(), 17, {});
  for (int i = 17; i < 20; ++i) {
    EXPECT_EQ(p[i], 1.0f);
    EXPECT_EQ(m[i], 0.0f);
    EXPECT_EQ(v[i], 0.0f);
  }
}

}  // namespace
}  // namespace taut::kernels
