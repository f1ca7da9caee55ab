#include "kernels/adamw.h"

#include <cmath>

namespace taut::kernels {
namespace {

// One plain loop, compiled three times: the compiler vectorises it for the instruction set of the function that it is
// inlined into.
inline __attribute__((always_inline)) void adamw_loop(float* __restrict parameter, const float* __restrict gradient,
                                                      float* __restrict moment1, float* __restrict moment2,
                                                      int64_t count, const AdamWFactors& f) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * f.gradient_scale;
    const float m = moment1[i] * f.beta1 + g * f.one_minus_beta1;
    const float v = moment2[i] * f.beta2 + g * g * f.one_minus_beta2;
    moment1[i] = m;
    moment2[i] = v;
    parameter[i] = parameter[i] * f.decay - f.step_size * m / (std::sqrt(v) * f.inverse_sqrt_correction2 + f.eps);
  }
}

void adamw_plain(float* p, const float* g, float* m, float* v, int64_t n, const AdamWFactors& f) {
  adamw_loop(p, g, m, v, n, f);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void adamw_avx2(float* p, const float* g, float* m, float* v, int64_t n,
                                                    const AdamWFactors& f) {
  adamw_loop(p, g, m, v, n, f);
}

__attribute__((target("avx512f,avx512vl,avx512dq,fma,prefer-vector-width=512"))) void adamw_avx512(
    float* p, const float* g, float* m, float* v, int64_t n, const AdamWFactors& f) {
  adamw_loop(p, g, m, v, n, f);
}
#endif

}  // namespace

AdamWFactors adamw_factors(const AdamWStep& s) {
  const double correction1 = 1.0 - std::pow(s.beta1, double(s.step));
  const double correction2 = 1.0 - std::pow(s.beta2, double(s.step));
  return {float(1.0 - s.lr * s.weight_decay),
          float(s.beta1),
          float(1.0 - s.beta1),
          float(s.beta2),
          float(1.0 - s.beta2),
          float(s.lr / correction1),
          float(1.0 / std::sqrt(correction2)),
          float(s.eps),
          float(s.gradient_scale)};
}

std::vector<InstructionSet> supported_instruction_sets() {
  std::vector<InstructionSet> sets{InstructionSet::plain};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    sets.push_back(InstructionSet::avx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
      sets.push_back(InstructionSet::avx512);
    }
  }
#endif
  return sets;
}

void adamw_cpu_with(InstructionSet set, float* parameter, const float* gradient, float* moment1, float* moment2,
                    int64_t count, const AdamWStep& step) {
  const AdamWFactors f = adamw_factors(step);
#if defined(__x86_64__)
  if (set == InstructionSet::avx512) return adamw_avx512(parameter, gradient, moment1, moment2, count, f);
  if (set == InstructionSet::avx2) return adamw_avx2(parameter, gradient, moment1, moment2, count, f);
#endif
  (void)set;
  adamw_plain(parameter, gradient, moment1, moment2, count, f);
}

void adamw_cpu(float* parameter, const float* gradient, float* moment1, float* moment2, int64_t count,
               const AdamWStep& step, void*) {
  static const InstructionSet best = supported_instruction_sets().back();
  adamw_cpu_with(best, parameter, gradient, moment1, moment2, count, step);
}

}  // namespace taut::kernels
