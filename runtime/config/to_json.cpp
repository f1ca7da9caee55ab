// Config to JSON, by the key table.
#include "runtime/config/keys.h"
#include "runtime/config/load.h"

namespace taut::config {
namespace {

// A key's value; discarded when the key is one that was left out and not yet filled in.
struct Print {
  const Key& key;
  Config& config;

  Json empty() const { return key.empty != nullptr ? Json(key.empty) : Json(nullptr); }

  Json operator()(int64_t* (*member)(Config&)) const {
    const int64_t value = *member(config);
    if (key.left_out != nullptr && static_cast<double>(value) < key.range.min) return Json(Json::value_t::discarded);
    return value;
  }
  Json operator()(double* (*member)(Config&)) const { return *member(config); }
  Json operator()(bool* (*member)(Config&)) const { return *member(config); }
  Json operator()(std::string* (*member)(Config&)) const { return *member(config); }
  Json operator()(const EnumMember& member) const { return member.names[static_cast<size_t>(member.get(config))]; }
  Json operator()(std::pair<double, double>* (*member)(Config&)) const {
    return Json::array({member(config)->first, member(config)->second});
  }
  Json operator()(std::optional<std::pair<int64_t, int64_t>>* (*member)(Config&)) const {
    const auto& pair = *member(config);
    return pair ? Json::array({pair->first, pair->second}) : empty();
  }
  template <class Value>
  Json operator()(std::optional<Value>* (*member)(Config&)) const {
    const auto& value = *member(config);
    return value ? Json(*value) : empty();
  }
};

void set_at(Json& json, const std::string& path, Json value) {
  Json* place = &json;
  for (size_t begin = 0;;) {
    const size_t dot = path.find('.', begin);
    if (dot == std::string::npos) {
      (*place)[path.substr(begin)] = std::move(value);
      return;
    }
    place = &(*place)[path.substr(begin, dot - begin)];
    begin = dot + 1;
  }
}

}  // namespace

Json to_json(const Config& config) {
  Config copy = config;  // members are reached through pointers to non-const
  Json json = Json::object();
  for (const Key& key : keys()) {
    Json value = std::visit(Print{key, copy}, key.member);
    if (!value.is_discarded()) set_at(json, key.path, std::move(value));
  }
  return json;
}

}  // namespace taut::config
