#include <type_traits>

#include "kernels/cuda/device.cuh"
#include "kernels/rope.h"

namespace taut::kernels {
namespace {

template <class T>
__global__ void rope_kernel(const T* __restrict__ x, T* __restrict__ y, Rope work) {
  const int64_t half = work.head_dim / 2, pairs = work.heads * half;
  for (int64_t row = work.first_row + blockIdx.x; row < work.first_row + work.rows; row += gridDim.x) {
    const int64_t position = row % work.positions * half;
    for (int64_t i = threadIdx.x; i < pairs; i += kThreads) {
      const int64_t head = i / half, j = i % half;
      const T* in = x + row * work.x_stride + head * work.head_dim + j;
      T* out = y + row * work.y_stride + head * work.head_dim + j;
      const float low = to_float(in[0]), high = to_float(in[half]);
      const float c = work.cos[position + j], s = work.sin[position + j] * work.direction;
      store(out, low * c - high * s);
      store(out + half, high * c + low * s);
    }
  }
}

}  // namespace

void rope_cuda(const Rope& work, void* stream) {
  if (work.rows == 0) return;
  with_device_type(work.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    rope_kernel<<<blocks_for(work.rows), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T*>(work.x), static_cast<T*>(work.y), work);
  });
  check_launch("RoPE");
}

}  // namespace taut::kernels
