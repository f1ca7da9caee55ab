#include "kernels/cross_entropy.h"
#include "kernels/cuda/device.cuh"

namespace taut::kernels {
namespace {

template <class T>
__global__ void forward_kernel(const T* __restrict__ logits, Logits shape, SoftmaxStatistics out) {
  for (int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
    const T* x = logits + row * shape.width;
    // Each thread keeps the largest of its columns and their sum relative to it.
    float largest = -INFINITY, sum = 0;
    for (int64_t i = threadIdx.x; i < shape.held; i += kThreads) {
      const float value = to_float(x[i]);
      if (value > largest) {
        sum = sum * __expf(largest - value) + 1.0f;
        largest = value;
      } else {
        sum += __expf(value - largest);
      }
    }
    const float of_row = over_block(largest, Largest{});
    const float scaled = largest == -INFINITY ? 0.0f : sum * __expf(largest - of_row);
    const float total = over_block(scaled, Sum{});
    if (threadIdx.x == 0) {
      const int64_t column = shape.labels[row] - shape.first_label;
      const bool is_here = shape.labels[row] >= 0 && column >= 0 && column < shape.held;
      out.largest[row] = of_row;
      out.sum[row] = total;
      out.label_logit[row] = is_here ? to_float(x[column]) : 0.0f;
    }
  }
}

template <class T>
__global__ void backward_kernel(T* __restrict__ logits, Logits shape, const float* __restrict__ log_sum_exp,
                                const float* __restrict__ gradient) {
  for (int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
    T* x = logits + row * shape.width;
    const bool is_masked = shape.labels[row] < 0;
    const int64_t column = shape.labels[row] - shape.first_label;
    const float shift = log_sum_exp[row], scale = gradient[row];
    for (int64_t i = threadIdx.x; i < shape.width; i += kThreads) {
      float result = 0;
      if (!is_masked && i < shape.held) {
        result = scale * (__expf(to_float(x[i]) - shift) - (i == column ? 1.0f : 0.0f));
      }
      store(x + i, result);
    }
  }
}

}  // namespace

void cross_entropy_forward_cuda(const Logits& logits, const SoftmaxStatistics& out, void* stream) {
  if (logits.rows == 0) return;
  with_device_type(logits.type, [&](auto* type) {
    forward_kernel<<<blocks_for(logits.rows), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<decltype(type)>(logits.values), logits, out);
  });
  check_launch("cross-entropy");
}

void cross_entropy_backward_cuda(const Logits& logits, const float* log_sum_exp, const float* gradient, void* stream) {
  if (logits.rows == 0) return;
  with_device_type(logits.type, [&](auto* type) {
    backward_kernel<<<blocks_for(logits.rows), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<decltype(type)>(logits.values), logits, log_sum_exp, gradient);
  });
  check_launch("cross-entropy gradient");
}

}  // namespace taut::kernels
