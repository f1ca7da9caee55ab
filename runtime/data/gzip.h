// Unpacking .gz files.
#pragma once

#include <string>

namespace taut::data {

/// Appends the whole unpacked content of the gzip file (any number of members) to `text`. Throws taut::Error if the
/// file cannot be read, is not gzip, ends early or fails its checksum.
void read_gzip(const std::string& path, std::string& text);

}  // namespace taut::data
