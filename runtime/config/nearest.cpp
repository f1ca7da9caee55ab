#include "runtime/config/nearest.h"

#include <algorithm>
#include <cctype>

namespace taut::config {
namespace {

// Case and separators are what people vary when they type a name from memory.
std::string folded(std::string_view word) {
  std::string out;
  for (const char c : word) out += c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  const size_t width = b.size() + 1;
  std::vector<int> before(width), above(width), row(width);
  for (size_t j = 0; j < width; ++j) above[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = above;
    above = row;
  }
  return above[b.size()];
}

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr size_t kShortestPrefix = 3;
  constexpr size_t kLongestName = 100;  // a longer word is no typing error, and the distance is quadratic
  if (word.size() > kLongestName) return {};
  const std::string typed = folded(word);
  std::optional<std::string> best;
  int best_distance = 0;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(typed, folded(candidate));
    const int allowed = static_cast<int>(std::max(typed.size(), candidate.size())) / 3;
    if (distance > std::max(allowed, 1) || (best && distance >= best_distance)) continue;
    best = candidate;
    best_distance = distance;
  }
  if (best) return best;
  for (const std::string& candidate : candidates) {
    const std::string name = folded(candidate);
    if (std::min(name.size(), typed.size()) >= kShortestPrefix && (typed.starts_with(name) || name.starts_with(typed)))
      return candidate;
  }
  return {};
}

}  // namespace taut::config
