// The training config that a trace carries.
#pragma once

#include <optional>

#include "analyzer/timeline/timeline.h"
#include "runtime/config/config.h"

namespace taut::timeline {

/// The effective, validated config of the run; empty when the trace carries none or one that this version does not
/// understand.
std::optional<config::Config> run_config(const Timeline& timeline);

}  // namespace taut::timeline
