// UTF-8: is this text, and where do characters begin.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace taut::data {

/// Why `head`, a file's beginning, is not text: "is not text: …" with the offset of the first NUL byte or invalid UTF-8
/// sequence (RFC 3629). A sequence cut off at the end is wrong only in a `complete` file.
std::optional<std::string> why_not_text(std::string_view head, bool complete);

/// `text` without the continuation bytes at its beginning that belong to a character before it.
std::string_view without_torn_begin(std::string_view text);

/// `text` without a character at its end that is cut off.
std::string_view without_torn_end(std::string_view text);

}  // namespace taut::data
