// Ranks as threads of one process, connected by real process groups: parallel layers without starting processes.
#pragma once

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/process_group.h"

namespace taut::testing {

struct GroupSettings {
  double timeout_s = 60;
  bool check = false;  // compare every operation, not only the first ones
  comm::BackendKind kind = comm::BackendKind::gloo;
};

/// Runs `body(group)` on `ranks` threads that form one group; rethrows the first exception.
inline void run_ranks(int ranks, const std::function<void(comm::Group&)>& body, const GroupSettings& settings = {}) {
  const auto store = comm::Rendezvous::in_process();
  comm::GroupSpec spec{comm::Axis::tp, "tp0", 1, {}};
  for (int rank = 0; rank < ranks; ++rank) spec.ranks.push_back(rank);
  std::vector<std::exception_ptr> failures(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        at::set_num_threads(1);
        comm::EmulatedLink link({});
        comm::Group group(store, spec, rank, settings.timeout_s, /*loopback=*/true, at::kCPU, link, settings.check,
                          settings.kind);
        body(group);
      } catch (...) {
        failures[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

/// Divides ranks 0 … n−1 into groups: one list of members for each group.
using Partition = std::vector<std::vector<int>>;

/// Runs `body(rank, groups)` on `ranks` threads, where groups[i] is the rank's group of partitions[i]; rethrows the
/// first exception.
inline void run_grouped_ranks(int ranks, const std::vector<Partition>& partitions,
                              const std::function<void(int, const std::vector<comm::Group*>&)>& body) {
  const auto store = comm::Rendezvous::in_process();
  std::vector<std::exception_ptr> failures(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        at::set_num_threads(1);
        comm::EmulatedLink link({});
        std::vector<std::unique_ptr<comm::Group>> groups;
        std::vector<comm::Group*> mine;
        int64_t id = 0;
        for (const Partition& partition : partitions) {
          for (const std::vector<int>& members : partition) {
            ++id;
            if (std::find(members.begin(), members.end(), rank) == members.end()) continue;
            const comm::GroupSpec spec{comm::Axis::tp, "group" + std::to_string(id), id, members};
            groups.push_back(
                std::make_unique<comm::Group>(store, spec, rank, /*timeout_s=*/60, /*loopback=*/true, at::kCPU, link));
            mine.push_back(groups.back().get());
          }
        }
        body(rank, mine);
      } catch (...) {
        failures[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace taut::testing
