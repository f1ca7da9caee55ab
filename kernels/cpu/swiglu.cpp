#include "kernels/swiglu.h"

#include "kernels/cpu/vectorised.h"

namespace taut::kernels {
namespace {

TAUT_INLINE float logistic(float x) {
  return 1.0f / (1.0f + exp_of(x < -87.0f ? 87.0f : -x));
}

template <class T>
TAUT_INLINE void forward_row(const T* __restrict gate, const T* __restrict up, T* __restrict y, int64_t width) {
  for (int64_t i = 0; i < width; ++i) {
    const float g = to_float(gate[i]);
    store(y + i, g * logistic(g) * to_float(up[i]));
  }
}

template <class T>
TAUT_INLINE void backward_row(const T* __restrict gate, const T* __restrict up, const T* __restrict dy,
                              T* __restrict dgate, T* __restrict dup, int64_t width) {
  for (int64_t i = 0; i < width; ++i) {
    const float g = to_float(gate[i]), gradient = to_float(dy[i]), sigma = logistic(g);
    store(dgate + i, gradient * to_float(up[i]) * sigma * (1.0f + g * (1.0f - sigma)));
    store(dup + i, gradient * g * sigma);
  }
}

template <class T>
TAUT_INLINE void forward_rows(T*, const SwigluForward& work) {
  for (int64_t row = 0; row < work.rows; ++row) {
    const T* gate = static_cast<const T*>(work.gate_up) + row * 2 * work.width;
    forward_row(gate, gate + work.width, static_cast<T*>(work.y) + row * work.width, work.width);
  }
}

template <class T>
TAUT_INLINE void backward_rows(T*, const SwigluBackward& work) {
  for (int64_t row = 0; row < work.rows; ++row) {
    const int64_t at = row * 2 * work.width;
    const T* gate = static_cast<const T*>(work.gate_up) + at;
    T* dgate = static_cast<T*>(work.dgate_up) + at;
    backward_row(gate, gate + work.width, static_cast<const T*>(work.dy) + row * work.width, dgate, dgate + work.width,
                 work.width);
  }
}

}  // namespace

void swiglu_forward_cpu_with(InstructionSet set, const SwigluForward& work) {
  run_with(
      set, [=]() __attribute__((always_inline)) {
        with_type(
            work.type, [&](auto* type) __attribute__((always_inline)) { forward_rows(type, work); });
      });
}

void swiglu_backward_cpu_with(InstructionSet set, const SwigluBackward& work) {
  run_with(
      set, [=]() __attribute__((always_inline)) {
        with_type(
            work.type, [&](auto* type) __attribute__((always_inline)) { backward_rows(type, work); });
      });
}

void swiglu_forward_cpu(const SwigluForward& work, void*) {
  swiglu_forward_cpu_with(best_instruction_set(), work);
}

void swiglu_backward_cpu(const SwigluBackward& work, void*) {
  swiglu_backward_cpu_with(best_instruction_set(), work);
}

}  // namespace taut::kernels
