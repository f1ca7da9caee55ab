// Trace files come from anybody: every string of theirs passes through one of these before it reaches a terminal, a
// Markdown file or a browser.
#pragma once

#include <string>
#include <string_view>

namespace taut::report {

/// Valid UTF-8 on one line: tabs and line breaks become spaces, other control characters (terminal escapes) and broken
/// sequences become "?".
std::string printable(std::string_view text);

/// `printable`, with &, <, >, " and ' escaped for HTML text and quoted attributes.
std::string escape_html(std::string_view text);

/// `printable`, with the characters that mean something inside a Markdown table cell escaped.
std::string escape_markdown(std::string_view text);

/// Columns that `text` (valid UTF-8) takes on a terminal, counting each code point as one.
size_t display_width(std::string_view text);

/// `text` cut to `width` columns, ending in "…" when something was cut. `width` >= 1.
std::string shorten(std::string_view text, size_t width);

}  // namespace taut::report
