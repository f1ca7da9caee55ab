// Totals over a trace without looking at steps: the table of operations and the table of devices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/timeline/timeline.h"

namespace taut::metrics {

enum class GroupBy { name, kind, lane };

/// All slices with one key. `self_ns` excludes what child slices on the same lane cover.
struct OperationTotal {
  std::string key;
  timeline::Kind kind = timeline::Kind::other;  // of the first slice
  int64_t count = 0, total_ns = 0, self_ns = 0, min_ns = 0, max_ns = 0;
  double mean_ns() const { return count ? static_cast<double>(total_ns) / static_cast<double>(count) : 0; }
};

/// One row per key, largest self time first. `rank` -1 = all ranks.
std::vector<OperationTotal> operation_totals(const timeline::Timeline& timeline, GroupBy by, int32_t rank = -1);

/// GPU time of one device of one rank over the whole file: kernels, copies and memsets; no annotations, no syncs.
/// total = last end - first start; computation = union of non-communication kernels and memsets; communication = union
/// of communication kernels; exposed_* = not under what precedes it; idle = total - union of all.
struct DeviceTotal {
  int32_t rank = -1, device = 0;
  int64_t total_ns = 0, computation_ns = 0, communication_ns = 0, exposed_communication_ns = 0, exposed_copy_ns = 0,
          idle_ns = 0;
};
std::vector<DeviceTotal> device_totals(const timeline::Timeline& timeline);

}  // namespace taut::metrics
