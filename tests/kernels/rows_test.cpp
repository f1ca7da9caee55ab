// LibTorch in fp64 is the oracle for every twin of the kernels that work on rows.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <limits>

#include "kernels/cross_entropy.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"

namespace taut::kernels {
namespace {

/// One kernel's twins, each as a call on tensors of `device`.
template <class Work>
struct Twin {
  std::string name;
  at::Device device;
  std::function<void(const Work&)> run;
};

template <class Work>
std::vector<Twin<Work>> twins(void (*with_set)(InstructionSet, const Work&), void (*cpu)(const Work&, void*),
                              void (*cuda)(const Work&, void*)) {
  std::vector<Twin<Work>> all;
  for (const InstructionSet set : supported_instruction_sets()) {
    all.push_back({"instruction set " + std::to_string(static_cast<int>(set)), at::kCPU,
                   [=](const Work& work) { with_set(set, work); }});
  }
  all.push_back({"dispatcher", at::kCPU, [=](const Work& work) { cpu(work, nullptr); }});
  if (torch::cuda::is_available()) {
    all.push_back({"CUDA", at::Device(at::kCUDA, 0), [=](const Work& work) { cuda(work, nullptr); }});
  }
  return all;
}

struct Type {
  Element element;
  at::ScalarType scalar;
  double tolerance;  // relative to the largest element: rounding of the result
};
constexpr Type kTypes[] = {
    {Element::fp32, at::kFloat, 2e-6}, {Element::bf16, at::kBFloat16, 4e-3}, {Element::fp16, at::kHalf, 6e-4}};

at::Tensor normal(at::IntArrayRef shape, int seed, at::ScalarType type = at::kFloat) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(shape, generator).to(type);
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance, const std::string& what) {
  const at::Tensor a = actual.cpu().to(at::kDouble);
  const double scale = std::max(1e-30, expected.abs().max().item<double>());
  EXPECT_LE((a - expected).abs().max().item<double>() / scale, tolerance) << what;
}

TEST(RmsNormKernel, ForwardAndBackwardAgreeWithLibTorch) {
  const auto forward = twins(rms_norm_forward_cpu_with, rms_norm_forward_cpu, rms_norm_forward_cuda);
  const auto backward = twins(rms_norm_backward_cpu_with, rms_norm_backward_cpu, rms_norm_backward_cuda);
  for (const Type& type : kTypes) {
    for (const int64_t width : {3, 31, 64, 513}) {
      constexpr int64_t kRows = 7;
      const at::Tensor x = normal({kRows, width}, 1), weight = normal({width}, 2);
      const at::Tensor dy = normal({kRows, width}, 3, type.scalar);
      const at::Tensor x64 = x.to(at::kDouble).requires_grad_(), w64 = weight.to(at::kDouble).requires_grad_();
      const at::Tensor y64 = at::rms_norm(x64, {width}, w64, 1e-5);
      y64.backward(dy.to(at::kDouble));
      for (size_t i = 0; i < forward.size(); ++i) {
        const std::string what = forward[i].name + ", width " + std::to_string(width);
        const at::Device device = forward[i].device;
        const at::Tensor on_x = x.to(device), on_weight = weight.to(device), on_dy = dy.to(device);
        const at::Tensor y = at::empty_like(on_dy), inverse = at::empty({kRows}, on_x.options());
        forward[i].run({on_x.const_data_ptr<float>(), on_weight.const_data_ptr<float>(), y.data_ptr(),
                        inverse.data_ptr<float>(), type.element, kRows, width, 1e-5f});
        const at::Tensor dx = at::empty_like(on_x), dweight = at::ones_like(on_weight);
        backward[i].run({on_x.const_data_ptr<float>(), on_weight.const_data_ptr<float>(), inverse.data_ptr<float>(),
                         on_dy.const_data_ptr(), dx.data_ptr<float>(), dweight.data_ptr<float>(), type.element, kRows,
                         width});
        expect_close(y, y64.detach(), type.tolerance, what);
        expect_close(dx, x64.grad(), 1e-5, what);
        expect_close(dweight - 1, w64.grad(), 1e-5, what + ": adds to what is there");
      }
    }
  }
}

TEST(SwigluKernel, ForwardAndBackwardAgreeWithLibTorch) {
  const auto forward = twins(swiglu_forward_cpu_with, swiglu_forward_cpu, swiglu_forward_cuda);
  const auto backward = twins(swiglu_backward_cpu_with, swiglu_backward_cpu, swiglu_backward_cuda);
  for (const Type& type : kTypes) {
    for (const int64_t width : {1, 33, 256}) {
      constexpr int64_t kRows = 5;
      at::Tensor gate_up = normal({kRows, 2 * width}, 4);
      gate_up[0][0] = 30.0;  // where σ is 1 and where it is 0
      gate_up[1][0] = -80.0;
      gate_up = gate_up.to(type.scalar);
      const at::Tensor dy = normal({kRows, width}, 5, type.scalar);
      const at::Tensor input = gate_up.to(at::kDouble).requires_grad_();
      const auto halves = input.chunk(2, -1);
      const at::Tensor y64 = at::silu(halves[0]) * halves[1];
      y64.backward(dy.to(at::kDouble));
      for (size_t i = 0; i < forward.size(); ++i) {
        const std::string what = forward[i].name + ", width " + std::to_string(width);
        const at::Tensor on_input = gate_up.to(forward[i].device), on_dy = dy.to(forward[i].device);
        const at::Tensor y = at::empty_like(on_dy), gradient = at::empty_like(on_input);
        forward[i].run({on_input.const_data_ptr(), y.data_ptr(), type.element, kRows, width});
        backward[i].run(
            {on_input.const_data_ptr(), on_dy.const_data_ptr(), gradient.data_ptr(), type.element, kRows, width});
        expect_close(y, y64.detach(), type.tolerance, what);
        expect_close(gradient, input.grad(), type.tolerance, what);
      }
    }
  }
}

TEST(RopeKernel, TurnsHeadsAndTurnsThemBack) {
  constexpr int64_t kBatch = 2, kSeq = 5, kHeads = 3, kDim = 34, kExtra = 7;
  const at::Tensor angle = normal({kSeq, kDim / 2}, 6, at::kDouble);
  const at::Tensor c = angle.cos().unsqueeze(1), s = angle.sin().unsqueeze(1);
  for (const Type& type : kTypes) {
    const at::Tensor wide = normal({kBatch * kSeq, kHeads * kDim + kExtra}, 7, type.scalar);
    const at::Tensor x64 = wide.to(at::kDouble).narrow(1, 0, kHeads * kDim).reshape({kBatch, kSeq, kHeads, kDim});
    const auto halves = x64.chunk(2, -1);
    const at::Tensor y64 = at::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, -1);
    for (const auto& twin : twins(rope_cpu_with, rope_cpu, rope_cuda)) {
      const at::Tensor x = wide.to(twin.device), cos = angle.cos().to(at::kFloat).to(twin.device),
                       sin = angle.sin().to(at::kFloat).to(twin.device);
      const at::Tensor y = at::empty({kBatch, kSeq, kHeads, kDim}, x.options());
      const at::Tensor back = at::zeros({kBatch, kSeq, kHeads + 1, kDim}, x.options());  // into a wider one
      Rope work{x.const_data_ptr(),
                y.data_ptr(),
                type.element,
                0,
                4,
                kHeads * kDim + kExtra,
                kHeads * kDim,
                kHeads,
                kDim,
                kSeq,
                cos.const_data_ptr<float>(),
                sin.const_data_ptr<float>(),
                1.0f};
      twin.run(work);  // in two parts, as threads would
      work.first_row = 4;
      work.rows = kBatch * kSeq - 4;
      twin.run(work);
      expect_close(y, y64, type.tolerance, twin.name);
      twin.run({y.const_data_ptr(), back.data_ptr(), type.element, 0, kBatch * kSeq, kHeads * kDim, (kHeads + 1) * kDim,
                kHeads, kDim, kSeq, cos.const_data_ptr<float>(), sin.const_data_ptr<float>(), -1.0f});
      expect_close(back.narrow(2, 0, kHeads), x64, 2 * type.tolerance, twin.name + ", turned back");
      EXPECT_EQ(back.narrow(2, kHeads, 1).abs().max().item<double>(), 0) << twin.name << ", beside the rows";
    }
  }
}

// Two ranks hold a vocabulary of 1500 in columns of 800; the last 100 are padding.
TEST(CrossEntropyKernel, RanksTogetherAgreeWithLibTorchOnTheWholeVocabulary) {
  constexpr int64_t kRows = 6, kVocab = 1500, kWidth = 800, kRanks = 2;
  std::vector<at::Device> devices = {at::kCPU};
  if (torch::cuda::is_available()) devices.emplace_back(at::kCUDA, 0);
  const at::Tensor labels = torch::tensor({0L, 799L, 800L, 1499L, -1L, 1200L}, at::kLong);
  const at::Tensor gradient = normal({kRows}, 8);
  for (const Type& type : kTypes) {
    const at::Tensor all = normal({kRows, kRanks * kWidth}, 9).mul(4).to(type.scalar);
    const at::Tensor real = all.narrow(1, 0, kVocab).to(at::kDouble).requires_grad_();
    const at::Tensor loss64 = at::cross_entropy_loss(real, labels, {}, at::Reduction::None, -1);
    loss64.backward(gradient.to(at::kDouble));
    for (const at::Device device : devices) {
      for (const InstructionSet set : supported_instruction_sets()) {
        const std::string what = device.str() + ", instruction set " + std::to_string(static_cast<int>(set));
        const at::Tensor on_labels = labels.to(device), on_gradient = gradient.to(device);
        std::vector<at::Tensor> parts, statistics;
        const auto logits_of = [&](int64_t rank) {
          return Logits{parts[rank].data_ptr(),
                        type.element,
                        kRows,
                        kWidth,
                        std::min(kWidth, kVocab - rank * kWidth),
                        rank * kWidth,
                        on_labels.const_data_ptr<int64_t>()};
        };
        for (int64_t rank = 0; rank < kRanks; ++rank) {
          parts.push_back(all.narrow(1, rank * kWidth, kWidth).contiguous().to(device));
          statistics.push_back(at::empty({3, kRows}, on_gradient.options()));
          float* out = statistics.back().data_ptr<float>();
          const SoftmaxStatistics to{out, out + kRows, out + 2 * kRows};
          device.is_cuda() ? cross_entropy_forward_cuda(logits_of(rank), to)
                           : cross_entropy_forward_cpu_with(set, logits_of(rank), to);
        }
        const at::Tensor largest = at::maximum(statistics[0][0], statistics[1][0]);
        at::Tensor sum = at::zeros_like(largest), label_logit = at::zeros_like(largest);
        for (const at::Tensor& s : statistics) {
          sum += s[1] * (s[0] - largest).exp();
          label_logit += s[2];
        }
        const at::Tensor log_sum_exp = largest + sum.log();
        expect_close((log_sum_exp - label_logit).masked_fill(on_labels < 0, 0), loss64.detach(), 2e-6, what);
        for (int64_t rank = 0; rank < kRanks; ++rank) {
          const float *joined = log_sum_exp.const_data_ptr<float>(), *g = on_gradient.const_data_ptr<float>();
          device.is_cuda() ? cross_entropy_backward_cuda(logits_of(rank), joined, g)
                           : cross_entropy_backward_cpu_with(set, logits_of(rank), joined, g);
        }
        const at::Tensor joined = at::cat(parts, 1);
        expect_close(joined.narrow(1, 0, kVocab), real.grad(), type.tolerance, what);
        EXPECT_EQ(joined.narrow(1, kVocab, kRanks * kWidth - kVocab).abs().max().item<float>(), 0) << "padding";
        EXPECT_EQ(joined[4].abs().max().item<float>(), 0) << "a masked row";
      }
    }
  }
}

// A rank whose columns are padding alone adds nothing.
TEST(CrossEntropyKernel, ARankOfPaddingAddsNothing) {
  std::vector<float> logits(8, 5.0f);
  const int64_t label = 0;
  float largest = 1, sum = 1, label_logit = 1, gradient = 1, log_sum_exp = 2;
  const Logits work{logits.data(), Element::fp32, 1, 8, 0, 8, &label};
  cross_entropy_forward_cpu(work, {&largest, &sum, &label_logit});
  EXPECT_EQ(largest, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(sum, 0);
  EXPECT_EQ(label_logit, 0);
  cross_entropy_backward_cpu(work, &log_sum_exp, &gradient);
  EXPECT_EQ(logits, std::vector<float>(8, 0.0f));
}

}  // namespace
}  // namespace taut::kernels
