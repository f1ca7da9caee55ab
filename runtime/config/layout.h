// What a config comes to before anything runs: mesh and groups, batch arithmetic, schedule, and of each stage the
// parameters, the memory and what is sent.
#pragma once

#include <string>

#include "runtime/config/load.h"

namespace taut::config {

/// Of a validated config: {"world_size", "mesh":{"dp","tp","pp","cp","ep"}, "groups":[{"kind","groups","size",
/// "stride"}], "batch":{…}, "pipeline":{"schedule","virtual_pipeline_stages","ideal_bubble_fraction"},
/// "model":{"parameters","flops_per_token"}, "stages":[{"stage","layers","parameters_per_rank","memory_bytes":{part…,
/// "total"},"sent_bytes_per_step":{"gradients","weights"}}], "memory_bytes_of_fullest_rank"}. Sizes in bytes; of ranks
/// that hold different numbers of experts the fullest; "total" leaves out "host", which a GPU does not hold.
Json layout_json(const Config& config);

/// The same for people, several lines.
std::string layout_text(const Config& config);

}  // namespace taut::config
