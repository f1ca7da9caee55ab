// "Did you mean": the candidate nearest to a mistyped word.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace taut::config {

/// Edits (insert, delete, replace, swap of neighbours; optimal string alignment) that turn `a` into `b`. O(|a|·|b|).
int edit_distance(std::string_view a, std::string_view b);

/// The candidate at the smallest edit distance, ignoring case and `-`/`_`; none when even that is further than a third
/// of the longer word, unless one is the beginning of the other ("gelu" for "gelu_new").
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace taut::config
