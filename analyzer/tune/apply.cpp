#include "analyzer/tune/apply.h"

#include <algorithm>
#include <map>

#include "runtime/config/nearest.h"
#include "taut.h"

namespace taut::tune {
namespace {

bool has_patch(const detect::Suggestion& suggestion) {
  return suggestion.patch.is_object() && !suggestion.patch.empty();
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const auto& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

[[noreturn]] void unknown_id(const std::string& what, const std::string& id, const std::vector<std::string>& valid) {
  std::string hint = valid.empty() ? "this trace has none" : "this trace has " + joined(valid);
  if (const auto nearest = config::nearest(id, valid)) hint = "did you mean " + *nearest + "? " + hint;
  throw Error("there is no " + what + " " + id, hint, 2);
}

[[noreturn]] void nothing_to_patch(const detect::Finding& finding, const detect::Suggestion* suggestion) {
  throw Error((suggestion ? suggestion->id : finding.id) + " has no change of the configuration to apply",
              suggestion && !suggestion->why.empty() ? suggestion->why : "see what taut analyze says about it", 2);
}

const detect::Suggestion* first_with_patch(const detect::Finding& finding) {
  return finding.suggestions.empty() || !has_patch(finding.suggestions.front()) ? nullptr
                                                                                : &finding.suggestions.front();
}

/// Every value that a patch sets, by its key path; arrays and nulls are values, an empty object sets nothing.
void collect_values(const nlohmann::json& patch, const std::string& prefix,
                    std::map<std::string, nlohmann::json>& out) {
  for (const auto& [key, value] : patch.items()) {
    const std::string path = prefix.empty() ? key : prefix + "." + key;
    if (value.is_object()) {
      collect_values(value, path, out);
    } else {
      out[path] = value;
    }
  }
}

/// True when one path lies above the other: "zero_optimization" and "zero_optimization.stage".
bool is_above(const std::string& upper, const std::string& lower) {
  return lower.size() > upper.size() && lower.compare(0, upper.size(), upper) == 0 && lower[upper.size()] == '.';
}

}  // namespace

std::vector<Choice> choose(const std::vector<detect::Finding>& findings, const Selection& selection) {
  std::vector<std::string> finding_ids, suggestion_ids;
  for (const auto& finding : findings) {
    finding_ids.push_back(finding.id);
    for (const auto& suggestion : finding.suggestions) suggestion_ids.push_back(suggestion.id);
  }
  const auto check = [](const char* what, const std::vector<std::string>& asked,
                        const std::vector<std::string>& valid) {
    for (const auto& id : asked) {
      if (std::find(valid.begin(), valid.end(), id) == valid.end()) unknown_id(what, id, valid);
    }
  };
  check("finding", selection.findings, finding_ids);
  check("suggestion", selection.suggestions, suggestion_ids);

  const auto asked = [](const std::vector<std::string>& ids, const std::string& id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  const bool is_default = selection.findings.empty() && selection.suggestions.empty();
  std::vector<Choice> chosen;
  for (const auto& finding : findings) {
    std::vector<const detect::Suggestion*> wanted;
    for (const auto& suggestion : finding.suggestions) {
      if (!asked(selection.suggestions, suggestion.id)) continue;
      if (!has_patch(suggestion)) nothing_to_patch(finding, &suggestion);
      wanted.push_back(&suggestion);
    }
    if (asked(selection.findings, finding.id)) {
      const auto* const first = first_with_patch(finding);
      if (!first) nothing_to_patch(finding, finding.suggestions.empty() ? nullptr : &finding.suggestions.front());
      if (std::find(wanted.begin(), wanted.end(), first) == wanted.end()) wanted.push_back(first);
    }
    if (is_default && finding.severity >= detect::Severity::medium) {
      if (const auto* const first = first_with_patch(finding)) wanted.push_back(first);
    }
    if (wanted.size() > 1) {
      throw Error(wanted[0]->id + " and " + wanted[1]->id + " are alternatives for one finding",
                  "name only one of them", 2);
    }
    for (const auto* const suggestion : wanted) chosen.push_back({&finding, suggestion});
  }
  return chosen;
}

config::Json joined_patch(const std::vector<Choice>& choices) {
  struct Value {
    nlohmann::json value;
    std::string from;
  };
  std::map<std::string, Value> seen;
  config::Json patch = config::Json::object();
  for (const auto& choice : choices) {
    std::map<std::string, nlohmann::json> values;
    collect_values(choice.suggestion->patch, "", values);
    for (const auto& [path, value] : values) {
      for (const auto& [other_path, other] : seen) {
        const bool same_key_other_value = path == other_path && value != other.value;
        if (same_key_other_value || is_above(path, other_path) || is_above(other_path, path)) {
          throw Error(choice.suggestion->id + " and " + other.from + " contradict each other: " + path + " = " +
                          value.dump() + " against " + other_path + " = " + other.value.dump(),
                      "apply one with --suggestion, rerun, and look again");
        }
      }
    }
    for (const auto& [path, value] : values) seen[path] = {value, choice.suggestion->id};
    patch.merge_patch(config::Json(choice.suggestion->patch));
  }
  // merge_patch drops nulls while joining; put them back so that keys to be removed stay in the joint patch.
  for (const auto& [path, value] : seen) {
    if (!value.value.is_null()) continue;
    config::Json* at = &patch;
    size_t begin = 0;
    for (size_t dot; (dot = path.find('.', begin)) != std::string::npos; begin = dot + 1) {
      at = &(*at)[path.substr(begin, dot - begin)];
    }
    (*at)[path.substr(begin)] = nullptr;
  }
  return patch;
}

config::Json patch_config(const config::Json& written, const config::Json& patch, const std::filesystem::path& base_dir,
                          std::optional<int64_t> world_size) {
  config::Json patched = config::merge_patch(written, patch);
  config::Json checked = patched;
  if (world_size && !checked.contains("world_size")) checked["world_size"] = *world_size;
  try {
    config::Config result = config::from_json(checked, base_dir);
    config::validate(result);
  } catch (const Error& error) {
    throw Error(std::string("the patched config would not be legal: ") + error.what(),
                error.hint().empty() ? "is --config the file that the trace was made with?" : error.hint());
  }
  return patched;
}

std::vector<std::string> disagreements(const config::Json& traced, const config::Json& written) {
  std::vector<std::string> out;
  if (!traced.is_object()) return out;
  for (const auto& change : config::diff(traced, written)) {
    if (change.before.is_discarded() || change.after.is_discarded()) continue;
    bool counts = true;
    for (const char* const prefix :
         {"data.path", "data.tokenizer", "checkpoint.", "elastic.", "trace.", "train_steps"}) {
      counts = counts && change.key.rfind(prefix, 0) != 0;
    }
    if (counts)
      out.push_back(change.key + ": " + change.before.dump() + " in the trace, " + change.after.dump() +
                    " in the file");
  }
  return out;
}

}  // namespace taut::tune
