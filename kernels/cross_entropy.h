// Softmax cross-entropy over rows of logits, in place: forward reads the logits once, backward overwrites them with
// their gradient. A rank may hold some columns of the vocabulary alone (Shoeybi et al., "Megatron-LM", arXiv
// 1909.08053, section 3); the caller then joins the ranks' statistics between the two:
//
//   forward   largest = max_j x_j,  sum = Σ_j exp(x_j − largest),  label_logit = x_label
//   join      M = max over ranks of largest;  S = Σ over ranks of sum · exp(largest − M);  L = Σ label_logit
//   loss      log S + M − L
//   backward  x_j ← g · (exp(x_j − (M + log S)) − [j = label])
//
// Forward is the one-pass softmax of Milakov & Gimelshein (arXiv 1805.02867) over blocks of columns. The kernels split
// no work over threads; callers may call them on disjoint rows at the same time.
#pragma once

#include <cstdint>

#include "kernels/element.h"
#include "kernels/instruction_set.h"

namespace taut::kernels {

/// `rows` rows of `width` logits, one after another; the first `held` columns of each are real, the rest padding (as if
/// −∞: it counts for nothing and gets the gradient 0). Column j stands for label first_label + j. labels [rows]: one
/// that is negative is masked, one that is not among the held columns belongs to another rank.
struct Logits {
  void* values = nullptr;
  Element type = Element::fp32;
  int64_t rows = 0, width = 0, held = 0, first_label = 0;
  const int64_t* labels = nullptr;
};

/// Per row, fp32 [rows]. Without held columns: −∞, 0. label_logit is 0 where the label is not held here.
struct SoftmaxStatistics {
  float *largest = nullptr, *sum = nullptr, *label_logit = nullptr;
};

void cross_entropy_forward_cpu(const Logits& logits, const SoftmaxStatistics& out, void* stream = nullptr);
/// `log_sum_exp` [rows] = M + log S, `gradient` [rows] of the losses. Masked rows become 0.
void cross_entropy_backward_cpu(const Logits& logits, const float* log_sum_exp, const float* gradient,
                                void* stream = nullptr);

/// The same on device memory; asynchronous on `stream` (a cudaStream_t). Throw taut::Error when the launch fails, and
/// always in a build without nvcc.
void cross_entropy_forward_cuda(const Logits& logits, const SoftmaxStatistics& out, void* stream = nullptr);
void cross_entropy_backward_cuda(const Logits& logits, const float* log_sum_exp, const float* gradient,
                                 void* stream = nullptr);

/// The CPU twin with a chosen instruction set, for tests.
void cross_entropy_forward_cpu_with(InstructionSet set, const Logits& logits, const SoftmaxStatistics& out);
void cross_entropy_backward_cpu_with(InstructionSet set, const Logits& logits, const float* log_sum_exp,
                                     const float* gradient);

}  // namespace taut::kernels
