#include "analyzer/tune/prediction.h"

#include <algorithm>
#include <set>

namespace taut::tune {
namespace {

/// Keys that say what is recorded or kept, not how training runs.
bool does_not_touch_speed(const std::string& key) {
  for (const char* const prefix : {"trace.", "elastic.", "train_steps", "scheduler.", "data.path", "checkpoint.dir"}) {
    if (key.rfind(prefix, 0) == 0) return true;
  }
  return false;
}

/// The keys that `patch` changes in `before` when `after` has exactly these values; empty when it does not.
std::set<std::string> followed_keys(const nlohmann::json& patch, const config::Json& before,
                                    const config::Json& after) {
  const config::Json patched = config::merge_patch(before, config::Json(patch));
  std::set<std::string> open;
  for (const auto& change : config::diff(patched, after)) open.insert(change.key);
  std::set<std::string> keys;
  for (const auto& change : config::diff(before, patched)) {
    if (open.count(change.key)) return {};
    keys.insert(change.key);
  }
  return keys;
}

}  // namespace

std::optional<PredictionCheck> check_prediction(const analyzer::Analysis& before, const config::Json& config_before,
                                                const config::Json& config_after,
                                                const std::vector<config::Change>& changes) {
  PredictionCheck check;
  std::set<std::string> explained;
  const double step_ms = before.summary.step_ms;
  check.step_ms = check.low = check.high = step_ms;
  for (const auto& finding : before.findings) {
    const detect::Suggestion* followed = nullptr;
    std::set<std::string> followed_by;
    for (const auto& suggestion : finding.suggestions) {
      if (!(suggestion.predicted.step_ms > 0)) continue;
      const auto keys = followed_keys(suggestion.patch, config_before, config_after);
      if (keys.size() > followed_by.size()) {
        followed = &suggestion;
        followed_by = keys;
      }
    }
    if (!followed) continue;
    check.suggestions.push_back(followed->id);
    explained.insert(followed_by.begin(), followed_by.end());
    check.step_ms -= step_ms - followed->predicted.step_ms;
    check.low -= step_ms - followed->predicted.low;
    check.high -= step_ms - followed->predicted.high;
  }
  if (check.suggestions.empty()) return {};
  check.low = std::max(check.low, 0.0);
  check.step_ms = std::max(check.step_ms, check.low);
  for (const auto& change : changes) {
    if (!explained.count(change.key) && !does_not_touch_speed(change.key)) check.other_changes.push_back(change.key);
  }
  return check;
}

}  // namespace taut::tune
