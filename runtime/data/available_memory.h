// How much memory this process can still use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace taut::data {

/// Bytes that can be allocated without swapping: what the kernel deems available, or less where a control group (a
/// container) of this process allows less. The largest number where neither says anything. `root` is the file system's
/// root, for tests.
uint64_t available_memory(const std::filesystem::path& root = "/");

/// "12.5 MiB".
std::string mebibytes(uint64_t bytes);

}  // namespace taut::data
