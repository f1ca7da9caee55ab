// The JSON names of the config's enums.
#pragma once

#include <span>

#include "runtime/config/config.h"

namespace taut::config {

/// Names in the order of the enum's values: names_of(Activation{}) = {"swiglu", "gelu"}.
std::span<const char* const> names_of(Normalization);
std::span<const char* const> names_of(Activation);
std::span<const char* const> names_of(PositionEmbedding);
std::span<const char* const> names_of(Attention);
std::span<const char* const> names_of(OptimizerType);
std::span<const char* const> names_of(SchedulerType);
std::span<const char* const> names_of(PipelineSchedule);
std::span<const char* const> names_of(GradientCompression);
std::span<const char* const> names_of(CheckpointingMode);
std::span<const char* const> names_of(OffloadDevice);

/// name(PipelineSchedule::one_f_one_b) == "1f1b".
template <class Enum>
const char* name(Enum value) {
  return names_of(value)[static_cast<size_t>(value)];
}

}  // namespace taut::config
