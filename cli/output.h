// How commands that read traces deliver what they have to say.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace taut::cli {

/// From here on a write into a closed pipe or beyond a file size limit fails with an error instead of ending the
/// process by a signal, half-written files left behind. print() and deliver() call it; commands that write files of
/// their own do.
void make_writes_fail_politely();

/// Writes to standard output. A reader that has gone (`taut … | head`) is no error: the rest is dropped. Anything else
/// that keeps the text from being written (a full disk behind a redirection) is a taut::Error.
void print(std::string_view text);

/// The JSON text of a result, ended by a line break. Strings that are no UTF-8 are repaired rather than refused.
std::string json_text(const nlohmann::ordered_json& json);

/// True when standard output is a terminal that wants colour (NO_COLOR unset, TERM not "dumb").
bool wants_color();

/// Prints `text`, or writes it to `out_path` when that is not empty, all or nothing. Refuses to overwrite `input_path`.
void deliver(const std::string& text, const std::string& out_path, const std::string& input_path);

/// Throws when `out_path` is the file `input_path`, which a command is about to read or has read.
void check_not_the_input(const std::string& out_path, const std::string& input_path);

}  // namespace taut::cli
