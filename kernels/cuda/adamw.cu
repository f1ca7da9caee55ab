#include "kernels/adamw.h"
#include "kernels/cuda/device.cuh"

namespace taut::kernels {
namespace {

__global__ void adamw_kernel(float* __restrict__ parameter, const float* __restrict__ gradient,
                             float* __restrict__ moment1, float* __restrict__ moment2, int64_t count, AdamWFactors f) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    const float g = gradient[i] * f.gradient_scale;
    const float m = moment1[i] * f.beta1 + g * f.one_minus_beta1;
    const float v = moment2[i] * f.beta2 + g * g * f.one_minus_beta2;
    moment1[i] = m;
    moment2[i] = v;
    const float p = parameter[i] * f.decay - f.step_size * m / (sqrtf(v) * f.inverse_sqrt_correction2 + f.eps);
    parameter[i] = p;
  }
}

}  // namespace

void adamw_cuda(float* parameter, const float* gradient, float* moment1, float* moment2, int64_t count,
                const AdamWStep& step, void* stream) {
  if (count == 0) return;
  const int blocks = blocks_for((count + kThreads - 1) / kThreads, 4096);
  adamw_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(parameter, gradient, moment1, moment2, count,
                                                                           adamw_factors(step));
  check_launch("AdamW");
}

}  // namespace taut::kernels
