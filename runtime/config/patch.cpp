// Changing a config's JSON: merge patches, differences, moving it to another folder.
#include "runtime/config/load.h"
#include "runtime/config/whole_file.h"
#include "taut.h"

namespace taut::config {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSentencePiece = "sentencepiece:";

void collect_changes(const Json& before, const Json& after, const std::string& path, std::vector<Change>& changes) {
  if (before.is_object() && after.is_object()) {
    const std::string prefix = path.empty() ? "" : path + ".";
    for (const auto& [name, value] : before.items()) {
      const auto other = after.find(name);
      const Json absent(Json::value_t::discarded);
      collect_changes(value, other == after.end() ? absent : *other, prefix + name, changes);
    }
    for (const auto& [name, value] : after.items()) {
      if (!before.contains(name)) collect_changes(Json(Json::value_t::discarded), value, prefix + name, changes);
    }
    return;
  }
  // A section that only one side has is listed key by key.
  if (before.is_discarded() && after.is_object() && !after.empty())
    return collect_changes(Json::object(), after, path, changes);
  if (after.is_discarded() && before.is_object() && !before.empty())
    return collect_changes(before, Json::object(), path, changes);
  if (before.is_discarded() != after.is_discarded() || (!before.is_discarded() && before != after)) {
    changes.push_back({path, before, after});
  }
}

std::string side_text(const Json& value) {
  return value.is_discarded() ? "(not set)" : value.dump();
}

// Keeps absolute paths absolute and empty ones empty.
std::string rebased(const std::string& path, const fs::path& from_dir, const fs::path& to_dir) {
  if (path.empty() || fs::path(path).is_absolute()) return path;
  return (from_dir / path).lexically_normal().lexically_proximate(to_dir).string();
}

fs::path folder(const fs::path& dir) {
  return fs::weakly_canonical(fs::absolute(dir.empty() ? fs::path(".") : dir));
}

void rebase_text(Json& json, const char* section, const char* key, std::string_view prefix, const fs::path& from_dir,
                 const fs::path& to_dir) {
  const auto in_section = json.find(section);
  if (in_section == json.end() || !in_section->is_object()) return;
  const auto value = in_section->find(key);
  if (value == in_section->end() || !value->is_string()) return;
  const auto text = value->get<std::string>();
  if (text.starts_with(prefix)) *value = std::string(prefix) + rebased(text.substr(prefix.size()), from_dir, to_dir);
}

}  // namespace

Json merge_patch(Json target, const Json& patch) {
  if (!patch.is_object()) return patch;
  if (!target.is_object()) target = Json::object();
  for (const auto& [name, value] : patch.items()) {
    if (value.is_null()) {
      target.erase(name);
    } else {
      const auto existing = target.find(name);
      target[name] = merge_patch(existing == target.end() ? Json() : *existing, value);
    }
  }
  return target;
}

std::vector<Change> diff(const Json& before, const Json& after) {
  std::vector<Change> changes;
  collect_changes(before, after, "", changes);
  return changes;
}

std::string diff_text(const Json& before, const Json& after) {
  std::string text;
  for (const Change& change : diff(before, after)) {
    text += change.key + ": " + side_text(change.before) + " -> " + side_text(change.after) + "\n";
  }
  return text;
}

Json rebase_paths(Json json, const fs::path& from_dir, const fs::path& to_dir) {
  if (!json.is_object()) return json;
  const fs::path from = folder(from_dir), to = folder(to_dir);
  if (from == to) return json;
  rebase_text(json, "data", "path", "", from, to);
  rebase_text(json, "data", "tokenizer", kSentencePiece, from, to);
  rebase_text(json, "checkpoint", "dir", "", from, to);
  return json;
}

void write_config_file(const Json& json, const fs::path& from_dir, const fs::path& path) {
  const std::string text = rebase_paths(json, from_dir, path.parent_path()).dump(2) + "\n";
  std::error_code ec;
  if (const auto status = fs::status(path, ec); fs::exists(status) && !fs::is_regular_file(status)) {
    throw Error(path.string() + " is not a regular file", "choose another path with -o");
  }
  write_file(path, text);
}

}  // namespace taut::config
