// Loss scaling for fp16 (Micikevicius et al., "Mixed Precision Training", arXiv 1710.03740, section 3.2), with
// DeepSpeed's keys and rules: the loss is multiplied by `scale` before backward; a step whose gradients overflow is
// skipped; the scale halves after `hysteresis` overflows and doubles after `loss_scale_window` steps without one.
// Plain data, the same on every rank, because every rank sees the same gradient norm.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "runtime/config/config.h"

namespace taut::optim {

class LossScaler {
 public:
  explicit LossScaler(const config::Fp16& settings)
      : settings_(settings),
        dynamic_(settings.enabled && settings.loss_scale == 0),
        overflows_left_(settings.hysteresis),
        scale_(!settings.enabled         ? 1.0
               : settings.loss_scale > 0 ? settings.loss_scale
                                         : std::exp2(static_cast<double>(settings.initial_scale_power))) {}

  double scale() const { return scale_; }

  /// After each step's norm is known. Returns whether the step may be taken. Without fp16 every step is.
  bool step(double norm) {
    if (!settings_.enabled) return true;
    if (std::isfinite(norm)) {
      if (dynamic_ && ++steps_without_overflow_ == settings_.loss_scale_window) {
        scale_ *= 2;
        steps_without_overflow_ = 0;
        overflows_left_ = settings_.hysteresis;
      }
      return true;
    }
    steps_without_overflow_ = 0;
    if (dynamic_ && --overflows_left_ <= 0) {
      scale_ = std::max(scale_ / 2, settings_.min_loss_scale);
      overflows_left_ = 1;
    }
    return false;
  }

 private:
  config::Fp16 settings_;
  bool dynamic_;
  int64_t steps_without_overflow_ = 0, overflows_left_;
  double scale_;
};

}  // namespace taut::optim
