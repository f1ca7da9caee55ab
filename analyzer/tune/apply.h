// From findings to a config: choose suggestions, join their merge patches, put them into the user's own file.
//
//   const auto chosen = choose(analysis.findings, {.findings = {"loader-stall#1"}});
//   const auto patched = patch_config(config::read_json_file("train.json"), joined_patch(chosen), ".",
//   traced_world_size); config::write_config_file(patched, ".", "tuned.json");
//
// Errors are taut::Error: unknown ids list the valid ones, contradicting patches name the key, an illegal result says
// which rule it breaks. Pure functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/detect/finding.h"
#include "runtime/config/load.h"

namespace taut::tune {

/// Ids as the report prints them. A finding stands for its first suggestion. Both empty = the first suggestion of every
/// finding that is medium or high.
struct Selection {
  std::vector<std::string> findings, suggestions;
};

struct Choice {
  const detect::Finding* finding = nullptr;
  const detect::Suggestion* suggestion = nullptr;
};

/// The suggestions asked for, without duplicates, in the order of the report. Pointers into `findings`. Empty only when
/// the default selection finds nothing to do. Throws (exit code 2) for an id that does not exist, for a suggestion
/// without a patch, and for two alternatives of one finding.
std::vector<Choice> choose(const std::vector<detect::Finding>& findings, const Selection& selection);

/// All patches in one. Throws when two of them give one key different values.
config::Json joined_patch(const std::vector<Choice>& choices);

/// `written` (the user's file, keys as they stand) with `patch` merged in, in the user's key order. The result has been
/// checked as `taut train` would check it; a config that leaves world_size out is checked for `world_size` ranks, those
/// of the trace. Throws when the result is no legal config. Does not look at the disk.
config::Json patch_config(const config::Json& written, const config::Json& patch, const std::filesystem::path& base_dir,
                          std::optional<int64_t> world_size);

/// Keys that the user's file sets to something else than the traced run had, as "data.num_workers: 0 in the trace, 2 in
/// the file": the prediction was made for the trace's values. Paths and what is recorded do not count. Empty when
/// `traced` is unknown (null).
std::vector<std::string> disagreements(const config::Json& traced, const config::Json& written);

}  // namespace taut::tune
