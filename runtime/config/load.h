// Reading, checking, printing and patching training configs.
//
// A config file is JSON; whole-line `//` comments are allowed, trailing commas and duplicate keys are not. Every key is
// described once, in the table of keys.h; reading, printing, the check for unknown keys and docs/config.md all follow
// it.
//
// Errors: everything here throws taut::Error that names the key path, the value, the rule and, where there is one, the
// nearest valid key. Thread safety: free functions without shared state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/config.h"

namespace taut::config {

/// Keeps the order in which keys were written.
using Json = nlohmann::ordered_json;

/// Parses a config's text. `name` (usually the file) stands in errors, which give line and column.
Json parse_text(std::string_view text, const std::string& name);

/// Reads and parses a file; checks nothing but JSON.
Json read_json_file(const std::filesystem::path& path);

/// Reads a config, applies `overrides` ("key.path=value"; the value is JSON, or else taken as text), then checks it.
/// `world_size` and `steps` take the place of the file's `world_size` and `train_steps`. The result is validated.
Config load_file(const std::filesystem::path& path, const std::vector<std::string>& overrides = {},
                 std::optional<int64_t> world_size = {}, std::optional<int64_t> steps = {});

/// Sets "key.path=value" in `json`, making sections as needed.
void apply_override(Json& json, const std::string& assignment);

/// Turns JSON into a Config: known keys, right types, values within range. Relative paths are resolved against
/// `base_dir`. Not validated: what several keys mean together is validate()'s job.
Config from_json(const Json& json, const std::filesystem::path& base_dir);

/// The effective config: every key, defaults filled in. from_json(to_json(c), any folder) gives the same config.
Json to_json(const Config& config);

/// Checks what keys mean together and fills in what was left out: world_size (product of the model-parallel sizes),
/// num_query_groups, ffn_hidden_size, the scheduler's total_num_steps and the batch numbers. Batch rule as in
/// DeepSpeed: train_batch_size = train_micro_batch_size_per_gpu × gradient_accumulation_steps × data-parallel size,
/// where any one may be left out; train_batch_size or micro batch alone means one accumulation step. Calling it twice
/// changes nothing.
void validate(Config& config);

/// Checks that data.path (unless mock) exists and can be read. load_file does; validate does not touch the disk.
void check_files(const Config& config);

/// Remarks for the user: keys that were set but do nothing in this config.
std::vector<std::string> notes(const Config& config);

/// RFC 7386: objects merge, null removes, everything else replaces.
Json merge_patch(Json target, const Json& patch);

/// One key that differs. A side that lacks the key is a discarded value (`is_discarded()`).
struct Change {
  std::string key;  // "data.num_workers"
  Json before, after;
};
/// Keys whose values differ, in the order of `before`, then new keys.
std::vector<Change> diff(const Json& before, const Json& after);

/// The same, one "key: old -> new" line per change.
std::string diff_text(const Json& before, const Json& after);

/// Rewrites the relative paths inside a config (data.path, tokenizer file, checkpoint.dir), so that a config that lay
/// in `from_dir` means the same when it lies in `to_dir`.
Json rebase_paths(Json json, const std::filesystem::path& from_dir, const std::filesystem::path& to_dir);

/// Writes a config whose relative paths are relative to `from_dir` to `path`, rebased to path's folder. All or nothing
/// (whole_file.h).
void write_config_file(const Json& json, const std::filesystem::path& from_dir, const std::filesystem::path& path);

/// FILE of "sentencepiece:FILE"; empty for the byte tokenizer.
std::string tokenizer_file(const Config& config);

}  // namespace taut::config
