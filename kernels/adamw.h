// AdamW (Loshchilov & Hutter, "Decoupled Weight Decay Regularization", algorithm 2) over flat fp32 buffers: one pass
// that reads parameter, gradient and both moments and writes parameter and moments.
//
//   p ← p − lr · wd · p
//   m ← β1 m + (1 − β1) g        v ← β2 v + (1 − β2) g²          with g = gradient_scale · gradient
//   p ← p − lr / (1 − β1^t) · m / (sqrt(v) / sqrt(1 − β2^t) + eps)
//
// The kernels split no work over threads; callers may call them on disjoint ranges at the same time.
#pragma once

#include <cstdint>

#include "kernels/instruction_set.h"

namespace taut::kernels {

struct AdamWStep {
  double lr = 3e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.0;
  double gradient_scale = 1.0;  // the clipping factor
  int64_t step = 1;             // t, counts from 1
};

/// The same numbers folded into what a loop over elements needs.
struct AdamWFactors {
  float decay, beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, inverse_sqrt_correction2, eps, gradient_scale;
};
AdamWFactors adamw_factors(const AdamWStep& step);

/// All pointers to `count` floats of host memory. `stream` is ignored; it is there so that both twins look the same.
/// Takes the fastest instruction set that the processor has.
void adamw_cpu(float* parameter, const float* gradient, float* moment1, float* moment2, int64_t count,
               const AdamWStep& step, void* stream = nullptr);

/// All pointers to `count` floats of device memory; asynchronous on `stream` (a cudaStream_t). Throws taut::Error when
/// the launch fails, and always in a build without nvcc.
void adamw_cuda(float* parameter, const float* gradient, float* moment1, float* moment2, int64_t count,
                const AdamWStep& step, void* stream = nullptr);

/// The CPU twin with a chosen instruction set, for tests.
void adamw_cpu_with(InstructionSet set, float* parameter, const float* gradient, float* moment1, float* moment2,
                    int64_t count, const AdamWStep& step);

}  // namespace taut::kernels
