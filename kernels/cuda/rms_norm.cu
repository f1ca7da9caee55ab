#include "kernels/cuda/device.cuh"
#include "kernels/rms_norm.h"

namespace taut::kernels {
namespace {

template <class T>
__global__ void forward_kernel(T* __restrict__ y, RmsNormForward work) {
  for (int64_t row = blockIdx.x; row < work.rows; row += gridDim.x) {
    const float* x = work.x + row * work.width;
    float squares = 0;
    for (int64_t i = threadIdx.x; i < work.width; i += kThreads) squares += x[i] * x[i];
    squares = over_block(squares, Sum{});
    const float r = 1.0f / sqrtf(squares / static_cast<float>(work.width) + work.epsilon);
    if (threadIdx.x == 0) work.inverse[row] = r;
    for (int64_t i = threadIdx.x; i < work.width; i += kThreads) {
      store(y + row * work.width + i, x[i] * r * work.weight[i]);
    }
  }
}

template <class T>
__global__ void backward_kernel(const T* __restrict__ dy, RmsNormBackward work) {
  for (int64_t row = blockIdx.x; row < work.rows; row += gridDim.x) {
    const float* x = work.x + row * work.width;
    const T* gradient = dy + row * work.width;
    float dot = 0;
    for (int64_t i = threadIdx.x; i < work.width; i += kThreads) dot += x[i] * work.weight[i] * to_float(gradient[i]);
    const float r = work.inverse[row];
    const float scale = over_block(dot, Sum{}) * r * r / static_cast<float>(work.width);
    for (int64_t i = threadIdx.x; i < work.width; i += kThreads) {
      work.dx[row * work.width + i] = r * (work.weight[i] * to_float(gradient[i]) - x[i] * scale);
    }
  }
}

/// Column sums: a block takes 32 columns and every gridDim.y-th group of 8 rows.
template <class T>
__global__ void weight_kernel(const T* __restrict__ dy, RmsNormBackward work) {
  const int lane = threadIdx.x % 32, line = threadIdx.x / 32;
  constexpr int kLines = kThreads / 32;
  const int64_t column = int64_t(blockIdx.x) * 32 + lane;
  float sum = 0;
  if (column < work.width) {
    for (int64_t row = int64_t(blockIdx.y) * kLines + line; row < work.rows; row += int64_t(gridDim.y) * kLines) {
      const int64_t at = row * work.width + column;
      sum += work.x[at] * work.inverse[row] * to_float(dy[at]);
    }
  }
  __shared__ float of_line[kLines][32];
  of_line[line][lane] = sum;
  __syncthreads();
  if (line > 0 || column >= work.width) return;
  for (int other = 1; other < kLines; ++other) sum += of_line[other][lane];
  atomicAdd(work.dweight + column, sum);
}

}  // namespace

void rms_norm_forward_cuda(const RmsNormForward& work, void* stream) {
  if (work.rows == 0) return;
  with_device_type(work.type, [&](auto* type) {
    forward_kernel<<<blocks_for(work.rows), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<decltype(type)>(work.y), work);
  });
  check_launch("RMSNorm");
}

void rms_norm_backward_cuda(const RmsNormBackward& work, void* stream) {
  if (work.rows == 0) return;
  with_device_type(work.type, [&](const auto* type) {
    const auto dy = static_cast<decltype(type)>(work.dy);
    const auto on = static_cast<cudaStream_t>(stream);
    backward_kernel<<<blocks_for(work.rows), kThreads, 0, on>>>(dy, work);
    const dim3 grid(static_cast<unsigned>((work.width + 31) / 32), blocks_for((work.rows + 63) / 64, 64));
    weight_kernel<<<grid, kThreads, 0, on>>>(dy, work);
  });
  check_launch("RMSNorm gradient");
}

}  // namespace taut::kernels
