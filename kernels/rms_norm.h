// RMSNorm (Zhang & Sennrich, arXiv 1910.07467) of rows, one pass each way:
//
//   y_i = x_i · r · w_i                       with r = 1 / sqrt(mean(x²) + epsilon)
//   dx_i = r · (w_i dy_i − x_i · r² · mean(x w dy))        dw_i = Σ over rows of x_i · r · dy_i
//
// x and dx are fp32; y, which a matrix product reads next, and dy, which one has written, may be 16-bit. The kernels
// split no work over threads; callers may call the CPU twins on disjoint rows at the same time.
#pragma once

#include <cstdint>

#include "kernels/element.h"
#include "kernels/instruction_set.h"

namespace taut::kernels {

struct RmsNormForward {
  const float *x = nullptr, *weight = nullptr;  // [rows, width], [width]
  void* y = nullptr;                            // [rows, width] of type `type`
  float* inverse = nullptr;                     // [rows]: r, for backward
  Element type = Element::fp32;
  int64_t rows = 0, width = 0;
  float epsilon = 1e-5f;
};

struct RmsNormBackward {
  const float *x = nullptr, *weight = nullptr, *inverse = nullptr;
  const void* dy = nullptr;  // [rows, width] of type `type`
  float* dx = nullptr;       // [rows, width]
  float* dweight = nullptr;  // [width]: added to
  Element type = Element::fp32;
  int64_t rows = 0, width = 0;
};

/// Host memory; `stream` is ignored.
void rms_norm_forward_cpu(const RmsNormForward& work, void* stream = nullptr);
void rms_norm_backward_cpu(const RmsNormBackward& work, void* stream = nullptr);

/// Device memory; asynchronous on `stream` (a cudaStream_t). The weight's gradient is summed over rows in an order that
/// changes from run to run. Throw taut::Error when the launch fails, and always in a build without nvcc.
void rms_norm_forward_cuda(const RmsNormForward& work, void* stream = nullptr);
void rms_norm_backward_cuda(const RmsNormBackward& work, void* stream = nullptr);

/// The CPU twins with a chosen instruction set, for tests.
void rms_norm_forward_cpu_with(InstructionSet set, const RmsNormForward& work);
void rms_norm_backward_cpu_with(InstructionSet set, const RmsNormBackward& work);

}  // namespace taut::kernels
