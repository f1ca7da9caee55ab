// Numbers as people read them: four or so significant digits, the unit beside the number, no scientific notation.
#pragma once

#include <cstdint>
#include <string>

namespace taut::report {

/// "12.3 ms", "950 µs", "1.20 s"; the unit follows the size. "-" when not finite.
std::string format_ms(double ms);
std::string format_ns(double ns);

/// 0.123 -> "12.3 %"; "-" when not finite.
std::string format_share(double share);

/// 0.123 -> "+12.3 %", for changes.
std::string format_change(double share);

/// 1536 -> "1.5 KiB".
std::string format_bytes(double bytes);

/// 1234567 -> "1,234,567".
std::string format_count(int64_t count);

/// `value` with `decimals` digits after the point; "-" when not finite.
std::string format_number(double value, int decimals);

}  // namespace taut::report
