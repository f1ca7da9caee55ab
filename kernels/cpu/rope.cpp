#include "kernels/rope.h"

#include "kernels/cpu/vectorised.h"

namespace taut::kernels {
namespace {

template <class T>
TAUT_INLINE void turn_head(const T* __restrict x, T* __restrict y, const float* __restrict cos,
                           const float* __restrict sin, int64_t half, float direction) {
  for (int64_t i = 0; i < half; ++i) {
    const float low = to_float(x[i]), high = to_float(x[i + half]), s = sin[i] * direction;
    store(y + i, low * cos[i] - high * s);
    store(y + i + half, high * cos[i] + low * s);
  }
}

template <class T>
TAUT_INLINE void turn_rows(T*, const Rope& work) {
  const int64_t half = work.head_dim / 2;
  for (int64_t row = work.first_row; row < work.first_row + work.rows; ++row) {
    const int64_t at = row % work.positions * half;
    for (int64_t head = 0; head < work.heads; ++head) {
      turn_head(static_cast<const T*>(work.x) + row * work.x_stride + head * work.head_dim,
                static_cast<T*>(work.y) + row * work.y_stride + head * work.head_dim, work.cos + at, work.sin + at,
                half, work.direction);
    }
  }
}

}  // namespace

void rope_cpu_with(InstructionSet set, const Rope& work) {
  run_with(
      set, [=]() __attribute__((always_inline)) {
        with_type(
            work.type, [&](auto* type) __attribute__((always_inline)) { turn_rows(type, work); });
      });
}

void rope_cpu(const Rope& work, void*) {
  rope_cpu_with(best_instruction_set(), work);
}

}  // namespace taut::kernels
