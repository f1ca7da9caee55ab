#include "runtime/data/text.h"

#include <cstdint>

namespace taut::data {
namespace {

/// Bytes of the character that starts with `lead`; 0 if none does.
size_t sequence_length(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return 2;
  if (lead >= 0xe0 && lead <= 0xef) return 3;
  if (lead >= 0xf0 && lead <= 0xf4) return 4;
  return 0;
}

bool is_continuation(uint8_t byte) {
  return (byte & 0xc0) == 0x80;
}

/// Overlong forms, surrogates and values beyond U+10FFFF show in the second byte (RFC 3629, section 4).
bool is_second(uint8_t lead, uint8_t byte) {
  switch (lead) {
    case 0xe0:
      return byte >= 0xa0 && byte <= 0xbf;
    case 0xed:
      return byte >= 0x80 && byte <= 0x9f;
    case 0xf0:
      return byte >= 0x90 && byte <= 0xbf;
    case 0xf4:
      return byte >= 0x80 && byte <= 0x8f;
    default:
      return is_continuation(byte);
  }
}

/// Length of the character at `at`, 0 if it is invalid; beyond the end of `text` if it is cut off there.
size_t character_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const size_t length = sequence_length(byte(at));
  for (size_t i = at + 1; i < at + length && i < text.size(); ++i) {
    if (!(i == at + 1 ? is_second(byte(at), byte(i)) : is_continuation(byte(i)))) return 0;
  }
  return length;
}

}  // namespace

std::optional<std::string> why_not_text(std::string_view head, bool complete) {
  for (size_t at = 0; at < head.size();) {
    const auto where = [at] { return " at byte " + std::to_string(at); };
    if (head[at] == '\0') return "is not text: NUL" + where();
    const size_t length = character_length(head, at);
    if (length == 0 || (complete && at + length > head.size())) return "is not text: invalid UTF-8" + where();
    at += length;
  }
  return std::nullopt;
}

std::string_view without_torn_begin(std::string_view text) {
  size_t skip = 0;
  while (skip < 3 && skip < text.size() && is_continuation(static_cast<uint8_t>(text[skip]))) ++skip;
  return text.substr(skip);
}

std::string_view without_torn_end(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<uint8_t>(text[text.size() - back]);
    if (is_continuation(byte)) continue;
    return sequence_length(byte) > back ? text.substr(0, text.size() - back) : text;
  }
  return text;
}

}  // namespace taut::data
