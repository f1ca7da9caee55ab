// Learning-rate schedules, with DeepSpeed's names. One table-like function; no state, so a resumed run continues
// exactly.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "runtime/config/config.h"

namespace taut::optim {

/// Learning rate of `step` (from 0). Warm-up is linear from warmup_min_ratio · lr at step 0 to lr at warmup_num_steps.
/// WarmupCosineLR then follows half a cosine down to cos_min_ratio · lr at total_num_steps (0 = `train_steps`) and
/// stays there; WarmupLR stays at lr; constant ignores all parameters.
inline double learning_rate(const config::Scheduler& scheduler, double lr, int64_t step, int64_t train_steps) {
  const config::SchedulerParams& p = scheduler.params;
  if (scheduler.type == config::SchedulerType::constant) return lr;
  if (step < p.warmup_num_steps) {
    const double progress = static_cast<double>(step) / static_cast<double>(p.warmup_num_steps);
    return lr * (p.warmup_min_ratio + (1.0 - p.warmup_min_ratio) * progress);
  }
  if (scheduler.type == config::SchedulerType::WarmupLR) return lr;
  const int64_t total = p.total_num_steps > 0 ? p.total_num_steps : train_steps;
  const double length = static_cast<double>(std::max<int64_t>(1, total - p.warmup_num_steps));
  const double progress = std::min(1.0, static_cast<double>(step - p.warmup_num_steps) / length);
  return lr * (p.cos_min_ratio + (1.0 - p.cos_min_ratio) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
}

}  // namespace taut::optim
