#include <type_traits>

#include "kernels/cuda/device.cuh"
#include "kernels/swiglu.h"

namespace taut::kernels {
namespace {

__device__ float logistic(float x) {
  return 1.0f / (1.0f + expf(-x));
}

template <class T>
__global__ void forward_kernel(const T* __restrict__ gate_up, T* __restrict__ y, int64_t rows, int64_t width) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * width; i += stride) {
    const int64_t at = i / width * 2 * width + i % width;
    const float g = to_float(gate_up[at]);
    store(y + i, g * logistic(g) * to_float(gate_up[at + width]));
  }
}

template <class T>
__global__ void backward_kernel(const T* __restrict__ gate_up, const T* __restrict__ dy, T* __restrict__ dgate_up,
                                int64_t rows, int64_t width) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * width; i += stride) {
    const int64_t at = i / width * 2 * width + i % width;
    const float g = to_float(gate_up[at]), gradient = to_float(dy[i]), sigma = logistic(g);
    store(dgate_up + at, gradient * to_float(gate_up[at + width]) * sigma * (1.0f + g * (1.0f - sigma)));
    store(dgate_up + at + width, gradient * g * sigma);
  }
}

}  // namespace

void swiglu_forward_cuda(const SwigluForward& work, void* stream) {
  if (work.rows * work.width == 0) return;
  with_device_type(work.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const int blocks = blocks_for((work.rows * work.width + kThreads - 1) / kThreads);
    forward_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T*>(work.gate_up), static_cast<T*>(work.y), work.rows, work.width);
  });
  check_launch("SwiGLU");
}

void swiglu_backward_cuda(const SwigluBackward& work, void* stream) {
  if (work.rows * work.width == 0) return;
  with_device_type(work.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const int blocks = blocks_for((work.rows * work.width + kThreads - 1) / kThreads);
    backward_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T*>(work.gate_up), static_cast<const T*>(work.dy), static_cast<T*>(work.dgate_up), work.rows,
        work.width);
  });
  check_launch("SwiGLU gradient");
}

}  // namespace taut::kernels
