// Sets of time as sorted, disjoint, non-empty half-open intervals.
//
// Integer nanoseconds, so that sums are exact. `normalize` is O(n log n), everything else O(n + m).
#pragma once

#include <cstdint>
#include <vector>

namespace taut::metrics {

struct Interval {
  int64_t start = 0, end = 0;
  bool operator==(const Interval&) const = default;
};

/// Sorted by start; neighbours neither overlap nor touch.
using IntervalSet = std::vector<Interval>;

/// The union of any intervals; empty and inverted ones count for nothing.
IntervalSet normalize(std::vector<Interval> intervals);

IntervalSet unite(const IntervalSet& a, const IntervalSet& b);
IntervalSet intersect(const IntervalSet& a, const IntervalSet& b);
/// What of `a` is not in `b`.
IntervalSet subtract(const IntervalSet& a, const IntervalSet& b);
/// `a` within [start, end).
IntervalSet clip(const IntervalSet& a, int64_t start, int64_t end);
int64_t length(const IntervalSet& a);

}  // namespace taut::metrics
