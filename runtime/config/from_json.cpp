// JSON to Config, by the key table.
#include <cmath>

#include "runtime/config/keys.h"
#include "runtime/config/load.h"
#include "runtime/config/nearest.h"
#include "taut.h"

namespace taut::config {
namespace {

namespace fs = std::filesystem;

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr size_t kLongest = 80;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "…";
  return text;
}

[[noreturn]] void refuse(const Key& key, const Json& value, const std::string& extra = {}) {
  std::string hint = "give " + describe_rule(key);
  if (!extra.empty()) hint += "; " + extra;
  throw Error(std::string(key.path) + " is " + shown(value), hint);
}

bool within(const Range& range, double value) {
  const bool high_enough = range.above_min ? value > range.min : value >= range.min;
  const bool low_enough = range.below_max ? value < range.max : value <= range.max;
  return std::isfinite(value) && high_enough && low_enough;
}

// 5e7 and 64.0 are integers too: JSON has one kind of number.
int64_t read_integer(const Key& key, const Json& value, const Json& whole) {
  int64_t integer = 0;
  if (value.is_number_unsigned()) {
    const auto large = value.get<uint64_t>();
    if (large > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) refuse(key, whole);
    integer = static_cast<int64_t>(large);
  } else if (value.is_number_integer()) {
    integer = value.get<int64_t>();
  } else if (value.is_number_float()) {
    constexpr double kExact = 9007199254740992.0;  // 2^53: beyond, a double no longer names one integer
    const double number = value.get<double>();
    if (number != std::floor(number) || std::abs(number) > kExact) refuse(key, whole);
    integer = static_cast<int64_t>(number);
  } else {
    refuse(key, whole);
  }
  if (!within(key.range, static_cast<double>(integer))) refuse(key, whole);
  return integer;
}

double read_number(const Key& key, const Json& value, const Json& whole) {
  if (!value.is_number()) refuse(key, whole);
  const double number = value.get<double>();
  if (!within(key.range, number)) refuse(key, whole);
  return number;
}

// Stores one value by the kind of its member.
struct Store {
  const Key& key;
  const Json& value;
  Config& config;

  bool is_empty() const { return key.empty != nullptr ? value == Json(key.empty) : value.is_null(); }

  void operator()(int64_t* (*member)(Config&)) const { *member(config) = read_integer(key, value, value); }
  void operator()(double* (*member)(Config&)) const { *member(config) = read_number(key, value, value); }
  void operator()(bool* (*member)(Config&)) const {
    if (!value.is_boolean()) refuse(key, value);
    *member(config) = value.get<bool>();
  }
  void operator()(std::string* (*member)(Config&)) const {
    if (!value.is_string()) refuse(key, value);
    const auto& text = value.get_ref<const std::string&>();
    if (text.find('\0') != std::string::npos) refuse(key, value, "a text cannot hold the character NUL");
    *member(config) = text;
  }
  void operator()(const EnumMember& member) const {
    if (!value.is_string()) refuse(key, value);
    const std::vector<std::string> names(member.names.begin(), member.names.end());
    for (size_t i = 0; i < names.size(); ++i) {
      if (value == names[i]) return member.set(config, static_cast<int>(i));
    }
    const auto near = nearest(value.get<std::string>(), names);
    refuse(key, value, near ? "did you mean \"" + *near + "\"?" : "");
  }
  void operator()(std::optional<double>* (*member)(Config&)) const {
    if (is_empty()) {
      member(config)->reset();
    } else {
      *member(config) = read_number(key, value, value);
    }
  }
  void operator()(std::pair<double, double>* (*member)(Config&)) const {
    if (!value.is_array() || value.size() != 2) refuse(key, value);
    *member(config) = {read_number(key, value[0], value), read_number(key, value[1], value)};
  }
  void operator()(std::optional<std::pair<int64_t, int64_t>>* (*member)(Config&)) const {
    if (is_empty()) return member(config)->reset();
    if (!value.is_array() || value.size() != 2) refuse(key, value);
    *member(config) = {read_integer(key, value[0], value), read_integer(key, value[1], value)};
  }
  void operator()(std::optional<std::vector<int64_t>>* (*member)(Config&)) const {
    if (is_empty()) return member(config)->reset();
    *member(config) = read_list(value);
  }
  void operator()(std::optional<std::vector<std::vector<int64_t>>>* (*member)(Config&)) const {
    if (is_empty()) return member(config)->reset();
    if (!value.is_array()) refuse(key, value);
    std::vector<std::vector<int64_t>> lists;
    for (const Json& list : value) lists.push_back(read_list(list));
    *member(config) = std::move(lists);
  }

  std::vector<int64_t> read_list(const Json& list) const {
    if (!list.is_array()) refuse(key, value);
    std::vector<int64_t> integers;
    for (const Json& element : list) integers.push_back(read_integer(key, element, value));
    return integers;
  }
};

void read_key(const Key& key, const Json& value, Config& config) {
  if (value == "auto" && key.empty == nullptr && !std::holds_alternative<std::string* (*)(Config&)>(key.member)) {
    refuse(key, value, "nothing above Taut fills in \"auto\"; leave the key out for its default");
  }
  std::visit(Store{key, value, config}, key.member);
  config.provenance.keys_set.push_back(key.path);
}

bool is_harmless(const DeepSpeedKey& key, const Json& value) {
  for (const char* text : key.harmless) {
    const Json allowed = Json::parse(text);
    if (value == allowed ||
        (value.is_number() && allowed.is_number() && value.get<double>() == allowed.get<double>())) {
      return true;
    }
  }
  return false;
}

void read_deepspeed_key(const DeepSpeedKey& key, const Json& value, Config& config) {
  if (!is_harmless(key, value)) {
    std::string what = std::string(key.path) + " is " + shown(value) + ": this DeepSpeed key is not supported";
    if (value == "auto") what = std::string(key.path) + " is \"auto\", which nothing above Taut fills in";
    throw Error(what, key.instead);
  }
  config.provenance.notes.push_back(std::string(key.path) + " is a DeepSpeed key that does nothing here");
}

// A DeepSpeed feature that is switched off as a whole may be described in any detail.
bool is_switched_off(const std::string& path, const Json& section) {
  if (is_section(path) || find_deepspeed_key(path + ".enabled") == nullptr) return false;
  const auto enabled = section.find("enabled");
  return enabled != section.end() && *enabled == false;
}

void read_section(const std::string& section, const Json& object, Config& config) {
  for (const auto& [name, value] : object.items()) {
    const std::string path = section.empty() ? name : section + "." + name;
    if (name.find('.') != std::string::npos) {
      throw Error("there is no key \"" + name + "\"" + (section.empty() ? "" : " in " + section),
                  "write nested objects: {\"" + name.substr(0, name.find('.')) + "\": {…}}");
    }
    if (const Key* key = find_key(path)) {
      read_key(*key, value, config);
    } else if (const DeepSpeedKey* deepspeed = find_deepspeed_key(path)) {
      read_deepspeed_key(*deepspeed, value, config);
    } else if (is_section(path) || is_deepspeed_section(path)) {
      if (!value.is_object()) throw Error(path + " is " + shown(value), "give an object: \"" + name + "\": {…}");
      if (is_switched_off(path, value)) {
        config.provenance.notes.push_back(path + " is a DeepSpeed section that is switched off");
      } else {
        read_section(path, value, config);
      }
    } else {
      throw Error("there is no key " + path + " (its value is " + shown(value) + ")", suggest_key(path));
    }
  }
}

std::string absolute_path(const std::string& path, const fs::path& base_dir) {
  if (path.empty()) return path;
  return (base_dir / path).lexically_normal().string();
}

constexpr std::string_view kSentencePiece = "sentencepiece:";

}  // namespace

Config from_json(const Json& json, const fs::path& base_dir) {
  if (!json.is_object()) throw Error("the config is " + shown(json), "a config is a JSON object: {\"model\": {…}, …}");
  Config config;
  read_section("", json, config);
  const fs::path base = fs::absolute(base_dir.empty() ? fs::path(".") : base_dir);
  config.data.path = absolute_path(config.data.path, base);
  config.checkpoint.dir = absolute_path(config.checkpoint.dir, base);
  if (const std::string file = tokenizer_file(config); !file.empty()) {
    config.data.tokenizer = std::string(kSentencePiece) + absolute_path(file, base);
  }
  return config;
}

std::string tokenizer_file(const Config& config) {
  const std::string& tokenizer = config.data.tokenizer;
  return tokenizer.starts_with(kSentencePiece) ? tokenizer.substr(kSentencePiece.size()) : "";
}

}  // namespace taut::config
