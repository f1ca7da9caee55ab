// Turns unsorted slices of one lane into sorted columns with depths and parents.
#pragma once

#include <cstdint>
#include <vector>

#include "analyzer/timeline/timeline.h"

namespace taut::timeline {

struct RawSlice {
  int64_t start = 0, end = 0, rowid = 0;
  int64_t correlation = -1;  // of CUDA calls and GPU work
  uint32_t name = 0;
  Kind kind = Kind::other;
  Table table = Table::nvtx;
};

/// `nested`: slices of one thread, which contain each other. `packed`: slices that may overlap freely; each takes the
/// lowest depth that is free and has no parent.
enum class Layout { nested, packed };

/// Sorts `raw` (start, longer first, outer first) and fills lane.slices and lane.max_depth in the same order. O(n log
/// n).
void build_lane(std::vector<RawSlice>& raw, Layout layout, Lane& lane);

}  // namespace taut::timeline
