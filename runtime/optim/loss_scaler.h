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
      : settings_(settings), dynamic_(settings.enabled && settings.loss_scale == 0) {
    if (settings_.enabled) {
      state.scale = dynamic_ ? std::exp2(static_cast<double>(settings_.initial_scale_power)) : settings_.loss_scale;
    }
    state.overflows_left = settings_.hysteresis;
  }

  double scale() const { return state.scale; }

  /// After each step's norm is known. Returns whether the step may be taken. Without fp16 every step is.
  bool step(double norm) {
    if (!settings_.enabled) return true;
    if (std::isfinite(norm)) {
      if (dynamic_ && ++state.steps_without_overflow == settings_.loss_scale_window) {
        state.scale *= 2;
        state.steps_without_overflow = 0;
        state.overflows_left = settings_.hysteresis;
      }
      return true;
    }
    state.steps_without_overflow = 0;
    if (dynamic_ && --state.overflows_left <= 0) {
      state.scale = std::max(state.scale / 2, settings_.min_loss_scale);
      state.overflows_left = 1;
    }
    return false;
  }

  /// What a checkpoint keeps.
  struct State {
    double scale = 1.0;
    int64_t steps_without_overflow = 0, overflows_left = 1;
  };
  State state;

 private:
  config::Fp16 settings_;
  bool dynamic_;
};

}  // namespace taut::optim
