// `taut train --dry-run`: what a config comes to, and whether the runtime builds just that.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "runtime/config/config.h"

namespace taut::cli {

/// Prints the layout of a validated config. `worker` is taut-worker with the config and its overrides; it builds the
/// ranks' parts without memory and adds what it found. Empty (a build without the runtime): the layout alone. Returns
/// the exit code; the worker says on stderr what is wrong.
int dry_run(const config::Config& config, std::vector<std::string> worker, Format format);

}  // namespace taut::cli
