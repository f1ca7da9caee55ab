#include "kernels/adamw.h"

#include <cmath>

#include "kernels/cpu/vectorised.h"

namespace taut::kernels {
namespace {

TAUT_INLINE void adamw_loop(float* __restrict parameter, const float* __restrict gradient, float* __restrict moment1,
                            float* __restrict moment2, int64_t count, const AdamWFactors f) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * f.gradient_scale;
    const float m = moment1[i] * f.beta1 + g * f.one_minus_beta1;
    const float v = moment2[i] * f.beta2 + g * g * f.one_minus_beta2;
    moment1[i] = m;
    moment2[i] = v;
    const float p = parameter[i] * f.decay - f.step_size * m / (std::sqrt(v) * f.inverse_sqrt_correction2 + f.eps);
    parameter[i] = p;
  }
}

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

void adamw_cpu_with(InstructionSet set, float* p, const float* g, float* m, float* v, int64_t count,
                    const AdamWStep& step) {
  const AdamWFactors f = adamw_factors(step);
  run_with(
      set, [=]() __attribute__((always_inline)) { adamw_loop(p, g, m, v, count, f); });
}

void adamw_cpu(float* parameter, const float* gradient, float* moment1, float* moment2, int64_t count,
               const AdamWStep& step, void*) {
  adamw_cpu_with(best_instruction_set(), parameter, gradient, moment1, moment2, count, step);
}

}  // namespace taut::kernels
