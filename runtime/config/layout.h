// What a config comes to before anything runs: mesh, batch arithmetic, parameters and memory of each stage.
#pragma once

#include <string>

#include "runtime/config/load.h"

namespace taut::config {

/// Of a validated config: {"world_size", "mesh":{"dp","tp","pp","cp"}, "batch":{…}, "model":{"parameters",
/// "flops_per_token"}, "stages":[{"stage","layers","parameters_per_rank","memory_bytes":{…}}]}. Sizes in bytes.
Json layout_json(const Config& config);

/// The same for people, several lines.
std::string layout_text(const Config& config);

}  // namespace taut::config
