#include "runtime/data/available_memory.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <optional>

namespace taut::data {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

/// The number after `key` in a file of "key number" lines; an empty key takes the file's first word.
std::optional<uint64_t> number_in(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  uint64_t number = 0;
  while (key.empty() || file >> word) {
    if (key.empty() || word == key) return file >> number ? std::optional(number) : std::nullopt;
  }
  return std::nullopt;
}

uint64_t room(std::optional<uint64_t> limit, std::optional<uint64_t> used, std::optional<uint64_t> reclaimable) {
  if (!limit || !used) return kNoLimit;
  const uint64_t held = *used - std::min(*used, reclaimable.value_or(0));
  return *limit - std::min(*limit, held);
}

/// The least room in the groups from `mount`/`group` up to `mount`. "max" is no number, so it reads as no limit.
uint64_t room_in_groups(const fs::path& mount, fs::path group, const char* limit, const char* used,
                        const char* reclaimable) {
  uint64_t least = kNoLimit;
  for (group = group.relative_path();; group = group.parent_path()) {
    const fs::path folder = mount / group;
    least = std::min(least, room(number_in(folder / limit, ""), number_in(folder / used, ""),
                                 number_in(folder / "memory.stat", reclaimable)));
    if (group.empty()) return least;
  }
}

}  // namespace

uint64_t available_memory(const fs::path& root) {
  uint64_t least = kNoLimit;
  if (const auto kib = number_in(root / "proc/meminfo", "MemAvailable:")) least = *kib << 10;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/group" (version 1), "0::/group" (version 2)
    const size_t name = line.find(':'), path = line.find(':', name + 1);
    if (name == std::string::npos || path == std::string::npos) continue;
    const std::string controllers = line.substr(name + 1, path - name - 1), group = line.substr(path + 1);
    if (controllers.empty()) {
      least = std::min(least,
                       room_in_groups(root / "sys/fs/cgroup", group, "memory.max", "memory.current", "inactive_file"));
    } else if (controllers == "memory") {
      least = std::min(least, room_in_groups(root / "sys/fs/cgroup/memory", group, "memory.limit_in_bytes",
                                             "memory.usage_in_bytes", "total_inactive_file"));
    }
  }
  return least;
}

std::string mebibytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

}  // namespace taut::data
