#include "runtime/train/step_line.h"

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

}  // namespace taut::train
