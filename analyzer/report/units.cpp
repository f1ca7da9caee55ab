#include "analyzer/report/units.h"

#include <cmath>
#include <cstdio>

namespace taut::report {

std::string format_number(double value, int decimals) {
  if (!std::isfinite(value)) return "-";
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  if (std::string(text).find_first_not_of("-0.") == std::string::npos && text[0] == '-') return text + 1;  // no "-0.0"
  return text;
}

namespace {

std::string with_fitting_decimals(double value) {
  const double size = std::abs(value);
  return format_number(value, size >= 999.95 ? 0 : size >= 9.995 ? 1 : 2);
}

}  // namespace

std::string format_ms(double ms) {
  if (!std::isfinite(ms)) return "-";
  const double size = std::abs(ms);
  if (size >= 10'000) return with_fitting_decimals(ms / 1e3) + " s";
  if (size >= 1 || size == 0) return with_fitting_decimals(ms) + " ms";
  if (size >= 1e-3) return with_fitting_decimals(ms * 1e3) + " µs";
  return format_number(ms * 1e6, 0) + " ns";
}

std::string format_ns(double ns) {
  return format_ms(ns / 1e6);
}

std::string format_share(double share) {
  return std::isfinite(share) ? format_number(share * 100, 1) + " %" : std::string("-");
}

std::string format_change(double share) {
  if (!std::isfinite(share)) return "-";
  const std::string text = format_share(share);
  return text[0] == '-' ? text : "+" + text;
}

std::string format_bytes(double bytes) {
  if (!std::isfinite(bytes)) return "-";
  static const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  while (std::abs(bytes) >= 1024 && unit < 5) {
    bytes /= 1024;
    ++unit;
  }
  return format_number(bytes, unit == 0 ? 0 : 1) + " " + units[unit];
}

std::string format_count(int64_t count) {
  std::string digits = std::to_string(count);
  const size_t sign = digits[0] == '-';
  for (size_t i = digits.size(); i > sign + 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

}  // namespace taut::report
