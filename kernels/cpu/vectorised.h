// How one plain loop becomes three vectorised ones, and the arithmetic that such loops share. For the kernels' .cpp
// files alone.
//
// A kernel is written once, as plain loops in functions that are inlined; run_with() inlines it into a function of each
// instruction set, for which the compiler then vectorises it.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/element.h"
#include "kernels/instruction_set.h"

#define TAUT_INLINE inline __attribute__((always_inline))

namespace taut::kernels {

template <class Body>
void run_plain(const Body& body) {
  body();
}

#if defined(__x86_64__)
template <class Body>
__attribute__((target("avx2,fma,f16c"))) void run_avx2(const Body& body) {
  body();
}

template <class Body>
__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma,f16c,prefer-vector-width=512"))) void run_avx512(
    const Body& body) {
  body();
}
#endif

/// `body` is a lambda that captures by value, is marked always_inline and calls functions marked TAUT_INLINE.
template <class Body>
void run_with(InstructionSet set, const Body& body) {
#if defined(__x86_64__)
  if (set == InstructionSet::avx512) return run_avx512(body);
  if (set == InstructionSet::avx2) return run_avx2(body);
#endif
  (void)set;
  run_plain(body);
}

/// bf16 and fp16 as they lie in memory.
struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  _Float16 value;
};

TAUT_INLINE float to_float(float value) {
  return value;
}
TAUT_INLINE float to_float(Bf16 value) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(value.bits) << 16);
}
TAUT_INLINE float to_float(Fp16 value) {
  return static_cast<float>(value.value);
}

TAUT_INLINE void store(float* at, float value) {
  *at = value;
}
/// To nearest, ties to even; NaN stays NaN.
TAUT_INLINE void store(Bf16* at, float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  at->bits = static_cast<uint16_t>(value != value ? 0x7fc0u : rounded);
}
TAUT_INLINE void store(Fp16* at, float value) {
  at->value = static_cast<_Float16>(value);
}

/// Calls `use` with a typed pointer of that element.
template <class Use>
TAUT_INLINE void with_type(Element type, Use use) {
  if (type == Element::fp32) return use(static_cast<float*>(nullptr));
  if (type == Element::bf16) return use(static_cast<Bf16*>(nullptr));
  use(static_cast<Fp16*>(nullptr));
}

/// Sums run over this many lanes, so that the compiler may vectorise them without changing their order from one
/// instruction set to the next.
constexpr int64_t kLanes = 32;

/// Σ term(i) for i < count.
template <class Term>
TAUT_INLINE float lane_sum(int64_t count, Term term) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  float sum = 0;
  for (; i < count; ++i) sum += term(i);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return sum + lanes[0];
}

/// exp(x) for x ≤ 88, relative error below 2e-7; 0 below −87. Cody and Waite's reduction x = n ln 2 + r, then a
/// polynomial of degree 6 on |r| ≤ ln 2 / 2 (Taylor's: its remainder there is below 2e-8).
TAUT_INLINE float exp_of(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer
  const float clamped = x < -87.0f ? -87.0f : x;
  const float shifted = clamped * 1.44269504f + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const int32_t exponent = __builtin_bit_cast(int32_t, shifted) - __builtin_bit_cast(int32_t, kRound);
  const float power = __builtin_bit_cast(float, (exponent + 127) << 23);
  return x < -87.0f ? 0.0f : p * power;
}

}  // namespace taut::kernels
