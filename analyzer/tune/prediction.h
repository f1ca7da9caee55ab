// Which suggestions of an earlier analysis does a later config carry, and which step time did they promise?
#pragma once

#include <optional>
#include <vector>

#include "analyzer/tune/compare.h"

namespace taut::tune {

/// For each finding of `before`, the suggestion all of whose changes `config_after` carries (of several, the one that
/// changes most keys). Gains of different findings add up, since a millisecond belongs to one finding. `changes` is the
/// whole difference between the configs. Empty when no suggestion was followed. `measured_step_ms` is left at 0.
std::optional<PredictionCheck> check_prediction(const analyzer::Analysis& before, const config::Json& config_before,
                                                const config::Json& config_after,
                                                const std::vector<config::Change>& changes);

}  // namespace taut::tune
