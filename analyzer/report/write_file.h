// Reports reach the disk whole or not at all.
#pragma once

#include <filesystem>
#include <string_view>

namespace taut::report {

/// Writes `text` to `path` through a temporary file beside it, flushed to disk and renamed, so that a full disk or a
/// crash leaves either the old file or the new one. What is no regular file (a pipe, /dev/stdout) is written to
/// directly. Throws taut::Error with the path and the reason; nothing is left behind then.
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace taut::report
