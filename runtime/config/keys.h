// The one description of every config key. Reading, printing, the check for unknown keys and docs/config.md follow it:
// a new key is a member in config.h and one entry in keys.cpp.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/config/config.h"

namespace taut::config {

/// Whose name a key is.
enum class Origin { deepspeed, megatron, extension };

/// An enum member by its place in `names`.
struct EnumMember {
  std::span<const char* const> names;
  int (*get)(Config&);
  void (*set)(Config&, int);
};

/// Where a key's value lies in Config. Optional members print as Key::empty when they hold nothing.
using Member = std::variant<int64_t* (*)(Config&), double* (*)(Config&), bool* (*)(Config&), std::string* (*)(Config&),
                            EnumMember, std::optional<double>* (*)(Config&), std::pair<double, double>* (*)(Config&),
                            std::optional<std::pair<int64_t, int64_t>>* (*)(Config&),
                            std::optional<std::vector<int64_t>>* (*)(Config&),
                            std::optional<std::vector<std::vector<int64_t>>>* (*)(Config&)>;

/// What a number (each element, for lists) may be.
struct Range {
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
  bool above_min = false;  // min itself is not allowed
  bool below_max = false;  // max itself is not allowed
};

struct Key {
  const char* path;  // "model.hidden_size"
  Member member;
  Range range;
  Origin origin;
  const char* doc;
  const char* empty = nullptr;     // optional members: the word for "nothing"; nullptr = JSON null
  const char* left_out = nullptr;  // what the default 0 or "" stands for, in words
};

/// Every key, in the order in which configs are printed.
const std::vector<Key>& keys();

/// The key at `path`; nullptr when there is none.
const Key* find_key(const std::string& path);

/// Whether some key lies below `path` ("model", "optimizer.params").
bool is_section(const std::string& path);

/// The nearest valid key to an unknown one, as a sentence for a hint: by spelling among its section's keys, by its name
/// in another section, or by the name other frameworks give it.
std::string suggest_key(const std::string& path);

/// "an integer ≥ 1", "true or false", "\"rmsnorm\" or \"layernorm\"": for errors and docs.
std::string describe_rule(const Key& key);

/// "1 or more", "0 to 1", or empty when any number goes.
std::string describe_range(const Range& range);

/// A DeepSpeed key that Taut does not implement. It is accepted with one of `harmless` (JSON text) and refused
/// otherwise.
struct DeepSpeedKey {
  const char* path;
  std::vector<const char*> harmless;
  const char* instead;  // hint for a refused value
};
/// Every such key.
const std::vector<DeepSpeedKey>& deepspeed_keys();

/// The entry for `path`; nullptr when DeepSpeed has no such key (or Taut implements it).
const DeepSpeedKey* find_deepspeed_key(const std::string& path);

/// Whether some key of deepspeed_keys() lies below `path`.
bool is_deepspeed_section(const std::string& path);

}  // namespace taut::config
