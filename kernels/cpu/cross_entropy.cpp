#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/vectorised.h"

namespace taut::kernels {
namespace {

constexpr int64_t kBlock = 1024;  // columns that are read, compared and summed while they are in the first cache

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

template <class T>
TAUT_INLINE float largest_of(const T* __restrict x, int64_t count, float* __restrict as_float) {
  float lanes[kLanes];
  for (float& lane : lanes) lane = kMinusInfinity;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const float value = to_float(x[i + lane]);
      as_float[i + lane] = value;
      lanes[lane] = lanes[lane] > value ? lanes[lane] : value;
    }
  }
  float largest = kMinusInfinity;
  for (; i < count; ++i) {
    as_float[i] = to_float(x[i]);
    largest = std::max(largest, as_float[i]);
  }
  for (const float lane : lanes) largest = std::max(largest, lane);
  return largest;
}

template <class T>
TAUT_INLINE void forward_rows(const T* __restrict logits, const Logits& shape, const SoftmaxStatistics& out) {
  float block[kBlock];
  for (int64_t row = 0; row < shape.rows; ++row) {
    const T* x = logits + row * shape.width;
    float largest = kMinusInfinity, sum = 0;
    for (int64_t first = 0; first < shape.held; first += kBlock) {
      const int64_t count = std::min(kBlock, shape.held - first);
      const float highest = largest_of(x + first, count, block);
      if (highest > largest) {
        sum *= exp_of(largest - highest);
        largest = highest;
      }
      const float shift = largest;
      sum += lane_sum(
          count, [&](int64_t i) __attribute__((always_inline)) { return exp_of(block[i] - shift); });
    }
    const int64_t column = shape.labels[row] - shape.first_label;
    const bool is_here = shape.labels[row] >= 0 && column >= 0 && column < shape.held;
    out.largest[row] = largest;
    out.sum[row] = sum;
    out.label_logit[row] = is_here ? to_float(x[column]) : 0.0f;
  }
}

template <class T>
TAUT_INLINE void gradient_of_row(T* __restrict x, int64_t held, float shift, float scale) {
  for (int64_t i = 0; i < held; ++i) store(x + i, scale * exp_of(to_float(x[i]) - shift));
}

template <class T>
TAUT_INLINE void backward_rows(T* __restrict logits, const Logits& shape, const float* __restrict log_sum_exp,
                               const float* __restrict gradient) {
  for (int64_t row = 0; row < shape.rows; ++row) {
    T* x = logits + row * shape.width;
    const bool is_masked = shape.labels[row] < 0;
    const int64_t held = is_masked ? 0 : shape.held;
    const int64_t column = shape.labels[row] - shape.first_label;
    const bool is_here = column >= 0 && column < held;
    const float label_logit = is_here ? to_float(x[column]) : 0.0f;
    gradient_of_row(x, held, log_sum_exp[row], gradient[row]);
    // From the logit, not from the rounded product: p − 1 loses nothing where p is close to 1.
    if (is_here) store(x + column, gradient[row] * (exp_of(label_logit - log_sum_exp[row]) - 1.0f));
    for (int64_t i = held; i < shape.width; ++i) store(x + i, 0.0f);
  }
}

}  // namespace

void cross_entropy_forward_cpu_with(InstructionSet set, const Logits& logits, const SoftmaxStatistics& out) {
  run_with(
      set, [=]() __attribute__((always_inline)) {
        with_type(
            logits.type, [&](auto* type) __attribute__((always_inline)) {
              forward_rows(static_cast<decltype(type)>(logits.values), logits, out);
            });
      });
}

void cross_entropy_backward_cpu_with(InstructionSet set, const Logits& logits, const float* log_sum_exp,
                                     const float* gradient) {
  run_with(
      set, [=]() __attribute__((always_inline)) {
        with_type(
            logits.type, [&](auto* type) __attribute__((always_inline)) {
              backward_rows(static_cast<decltype(type)>(logits.values), logits, log_sum_exp, gradient);
            });
      });
}

void cross_entropy_forward_cpu(const Logits& logits, const SoftmaxStatistics& out, void*) {
  cross_entropy_forward_cpu_with(best_instruction_set(), logits, out);
}

void cross_entropy_backward_cpu(const Logits& logits, const float* log_sum_exp, const float* gradient, void*) {
  cross_entropy_backward_cpu_with(best_instruction_set(), logits, log_sum_exp, gradient);
}

}  // namespace taut::kernels
