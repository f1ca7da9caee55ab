#include "runtime/config/rules.h"

#include <algorithm>

namespace taut::config {

std::string text(int64_t value) {
  return std::to_string(value);
}

std::string product(std::initializer_list<int64_t> factors) {
  std::string out;
  for (const int64_t factor : factors) {
    if (!out.empty()) out += " × ";
    out += text(factor);
  }
  return out;
}

int64_t nearest_divisor(std::initializer_list<int64_t> values, int64_t wanted) {
  for (int64_t candidate = std::min(std::min(values), wanted); candidate > 1; --candidate) {
    if (std::all_of(values.begin(), values.end(), [&](int64_t value) { return value % candidate == 0; }))
      return candidate;
  }
  return 1;
}

int64_t next_multiple(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace taut::config
