#include "runtime/launch/placement.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <system_error>

namespace taut::launch {
namespace {

/// "0-3,8" -> 0 1 2 3 8; what is no such list gives nothing.
std::vector<int> read_cpu_list(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<int> cpus;
  std::string part;
  while (std::getline(in, part, ',')) {
    std::istringstream range(part);
    int first = 0, last = 0;
    char dash = 0;
    if (!(range >> first)) return {};
    if (!(range >> dash >> last)) last = first;
    if (first < 0 || last < first || last >= CPU_SETSIZE) return {};
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

/// The allowed processors of each NUMA node that has any, in the nodes' order.
std::vector<std::vector<int>> allowed_by_node(const std::filesystem::path& folder, const std::vector<int>& allowed) {
  std::map<int, std::vector<int>> nodes;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    const std::string name = entry.path().filename();
    if (name.rfind("node", 0) != 0 || name.find_first_not_of("0123456789", 4) != std::string::npos || name.size() < 5) {
      continue;
    }
    std::vector<int> own;
    for (const int cpu : read_cpu_list(entry.path() / "cpulist")) {
      if (std::find(allowed.begin(), allowed.end(), cpu) != allowed.end()) own.push_back(cpu);
    }
    if (!own.empty()) nodes[std::stoi(name.substr(4))] = std::move(own);
  }
  std::vector<std::vector<int>> result;
  for (auto& [number, cpus] : nodes) result.push_back(std::move(cpus));
  return result;
}

}  // namespace

Placement place_rank(const std::filesystem::path& folder, const std::vector<int>& allowed, int local_rank,
                     int local_ranks) {
  const auto nodes = allowed_by_node(folder, allowed);
  const int count = static_cast<int>(nodes.size());
  Placement placement;
  if (count < 2) {
    placement.threads = std::max(1, static_cast<int>(allowed.size()) / local_ranks);
    return placement;
  }
  const auto first_node = [&](int rank) { return rank * count / local_ranks; };
  const int first = first_node(local_rank), last = std::max(first + 1, first_node(local_rank + 1));
  for (int node = first; node < last; ++node) {
    placement.cpus.insert(placement.cpus.end(), nodes[node].begin(), nodes[node].end());
  }
  int sharing = 0;
  for (int rank = 0; rank < local_ranks; ++rank) sharing += first_node(rank) == first;
  placement.threads = std::max(1, static_cast<int>(placement.cpus.size()) / sharing);
  return placement;
}

int bind_rank(int local_rank, int local_ranks) {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> allowed;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) allowed.push_back(cpu);
    }
  }
  const Placement placement = place_rank("/sys/devices/system/node", allowed, local_rank, local_ranks);
  if (!placement.cpus.empty()) {
    CPU_ZERO(&set);
    for (const int cpu : placement.cpus) CPU_SET(cpu, &set);
    // Refused: it runs where it may, only slower.
    sched_setaffinity(0, sizeof set, &set);
  }
  return placement.threads;
}

}  // namespace taut::launch
