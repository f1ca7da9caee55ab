// A config from a file, with the command line's overrides.
#include "runtime/config/load.h"

#include "taut.h"

namespace taut::config {
namespace {

namespace fs = std::filesystem;

// The value of --set: JSON where it is JSON (4, true, [1, 2], "text"), else the text as it stands.
Json override_value(const std::string& text) {
  Json value = Json::parse(text, nullptr, false);
  return value.is_discarded() ? Json(text) : value;
}

std::string quoted(const std::string& text) {
  return "\"" + text + "\"";
}

}  // namespace

void apply_override(Json& json, const std::string& assignment) {
  const size_t equals = assignment.find('=');
  const std::string path = assignment.substr(0, equals);
  if (equals == std::string::npos || path.empty()) {
    throw Error("--set " + quoted(assignment) + " is not KEY=VALUE", "for example --set data.num_workers=4", 2);
  }
  Json* place = &json;
  for (size_t begin = 0;;) {
    const size_t dot = path.find('.', begin);
    const std::string name = path.substr(begin, dot == std::string::npos ? dot : dot - begin);
    if (name.empty())
      throw Error("--set " + quoted(assignment) + " has an empty name in its key", "write SECTION.KEY=VALUE", 2);
    if (!place->is_object()) {
      throw Error(
          "--set " + quoted(assignment) + ": " + path.substr(0, begin == 0 ? 0 : begin - 1) + " is not a section",
          "see docs/config.md for the keys", 2);
    }
    place = &(*place)[name];
    if (dot == std::string::npos) break;
    if (place->is_null()) *place = Json::object();
    begin = dot + 1;
  }
  *place = override_value(assignment.substr(equals + 1));
}

Config load_file(const fs::path& path, const std::vector<std::string>& overrides, std::optional<int64_t> world_size,
                 std::optional<int64_t> steps) {
  Json json = read_json_file(path);
  try {
    if (!json.is_object()) from_json(json, ".");  // says what a config is
    for (const std::string& assignment : overrides) apply_override(json, assignment);
    if (world_size) json["world_size"] = *world_size;
    Config config = from_json(json, path.parent_path());
    if (steps) {
      // A shortened run follows the learning rates of the full one, so that its losses are the full run's first ones.
      const bool decays = config.scheduler.type != SchedulerType::constant;
      if (decays && config.scheduler.params.total_num_steps == 0)
        config.scheduler.params.total_num_steps = config.train_steps;
      if (*steps < 1) throw Error("--steps is " + std::to_string(*steps), "give an integer, 1 or more", 2);
      config.train_steps = *steps;
    }
    validate(config);
    check_files(config);
    return config;
  } catch (const Error& error) {
    throw Error(path.string() + ": " + error.what(), error.hint(), error.exit_code());
  }
}

}  // namespace taut::config
