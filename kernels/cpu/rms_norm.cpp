#include "kernels/rms_norm.h"

#include <cmath>

#include "kernels/cpu/vectorised.h"

namespace taut::kernels {
namespace {

template <class T>
TAUT_INLINE void forward_row(const float* __restrict x, const float* __restrict w, T* __restrict y, int64_t width,
                             float r) {
  for (int64_t i = 0; i < width; ++i) store(y + i, x[i] * r * w[i]);
}

template <class T>
TAUT_INLINE void forward_rows(T* y, const RmsNormForward& work) {
  for (int64_t row = 0; row < work.rows; ++row) {
    const float* x = work.x + row * work.width;
    const float squares = lane_sum(
        work.width, [x](int64_t i) __attribute__((always_inline)) { return x[i] * x[i]; });
    const float r = 1.0f / std::sqrt(squares / static_cast<float>(work.width) + work.epsilon);
    work.inverse[row] = r;
    forward_row(x, work.weight, y + row * work.width, work.width, r);
  }
}

template <class T>
TAUT_INLINE void backward_row(const float* __restrict x, const float* __restrict w, const T* __restrict dy,
                              float* __restrict dx, float* __restrict dw, int64_t width, float r) {
  const float dot = lane_sum(
      width, [=](int64_t i) __attribute__((always_inline)) { return x[i] * w[i] * to_float(dy[i]); });
  const float scale = dot * r * r / static_cast<float>(width);
  for (int64_t i = 0; i < width; ++i) {
    const float gradient = to_float(dy[i]);
    dx[i] = r * (w[i] * gradient - x[i] * scale);
    dw[i] += x[i] * r * gradient;
  }
}

template <class T>
TAUT_INLINE void backward_rows(const T* dy, const RmsNormBackward& work) {
  for (int64_t row = 0; row < work.rows; ++row) {
    const int64_t at = row * work.width;
    backward_row(work.x + at, work.weight, dy + at, work.dx + at, work.dweight, work.width, work.inverse[row]);
  }
}

}  // namespace

void rms_norm_forward_cpu_with(InstructionSet set, const RmsNormForward& work) {
  run_with(
      set, [=]() __attribute__((always_inline)) {
        with_type(
            work.type, [&](auto* type)
                           __attribute__((always_inline)) { forward_rows(static_cast<decltype(type)>(work.y), work); });
      });
}

void rms_norm_backward_cpu_with(InstructionSet set, const RmsNormBackward& work) {
  run_with(
      set, [=]() __attribute__((always_inline)) {
        with_type(
            work.type, [&](const auto* type) __attribute__((always_inline)) {
              backward_rows(static_cast<decltype(type)>(work.dy), work);
            });
      });
}

void rms_norm_forward_cpu(const RmsNormForward& work, void*) {
  rms_norm_forward_cpu_with(best_instruction_set(), work);
}

void rms_norm_backward_cpu(const RmsNormBackward& work, void*) {
  rms_norm_backward_cpu_with(best_instruction_set(), work);
}

}  // namespace taut::kernels
