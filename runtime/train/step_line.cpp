#include "runtime/train/step_line.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace taut::train {

std::string step_text(const StepReport& r) {
  char line[256];
  std::snprintf(line, sizeof line,
                "step %lld/%lld  loss %.4f  grad norm %.3f  lr %.3g  %.0f tokens/s  %.1f ms  MFU %.1f %%",
                static_cast<long long>(r.step), static_cast<long long>(r.steps), r.loss, r.grad_norm, r.lr,
                r.tokens_per_s, r.step_ms, 100.0 * r.mfu);
  return line;
}

std::string step_json(const StepReport& r) {
  // nlohmann writes NaN and infinity as null.
  return nlohmann::ordered_json{{"step", r.step},
                                {"loss", r.loss},
                                {"grad_norm", r.grad_norm},
                                {"lr", r.lr},
                                {"tokens_per_s", r.tokens_per_s},
                                {"step_ms", r.step_ms},
                                {"mfu", r.mfu},
                                {"memory_allocated_bytes", r.memory_allocated_bytes},
                                {"memory_peak_bytes", r.memory_peak_bytes}}
      .dump();
}

std::string run_text(std::vector<double> step_ms, double step_tokens) {
  const size_t steps = step_ms.size();
  char text[160];
  if (steps == 1) {
    std::snprintf(text, sizeof text, "1 step: %.1f ms (warm-up)", step_ms[0]);
    return text;
  }
  const double first = step_ms[0];
  step_ms.erase(step_ms.begin());
  const auto middle = step_ms.begin() + static_cast<std::ptrdiff_t>(step_ms.size() / 2);
  std::nth_element(step_ms.begin(), middle, step_ms.end());
  std::snprintf(text, sizeof text,
                "%zu steps: the first took %.1f ms (warm-up), the others %.1f ms in the median, %.0f tokens/s", steps,
                first, *middle, step_tokens / *middle * 1e3);
  return text;
}

}  // namespace taut::train
