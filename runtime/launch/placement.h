// Which processors a rank runs on, and how many threads it has: its share of what the machine lets it use. On a machine
// with several NUMA nodes a rank stays on its own, where its memory then lies as well (first touch).
#pragma once

#include <filesystem>
#include <vector>

namespace taut::launch {

struct Placement {
  std::vector<int> cpus;  // to bind to; empty = leave it to the scheduler: one NUMA node, or one that cannot be read
  int threads = 1;        // processors over the ranks that share them, at least 1
};

/// Of local rank `local_rank` of `local_ranks`. `allowed` are the processors that the process may use. `nodes` is a
/// folder like /sys/devices/system/node. NUMA nodes (those with allowed processors) and ranks are dealt to each other
/// in order and in equal shares: with more ranks than nodes neighbouring ranks share one, as the GPUs of common
/// machines do, with fewer ranks than nodes a rank has several.
Placement place_rank(const std::filesystem::path& nodes, const std::vector<int>& allowed, int local_rank,
                     int local_ranks);

/// Places this process and binds it (threads that exist already stay where they are). Returns how many threads to use.
int bind_rank(int local_rank, int local_ranks);

}  // namespace taut::launch
