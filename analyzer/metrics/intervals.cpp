#include "analyzer/metrics/intervals.h"

#include <algorithm>
#include <iterator>

namespace taut::metrics {
namespace {

// Appends [start, end) to a set whose intervals all start no later, merging with the last one.
void append(IntervalSet& set, Interval next) {
  if (next.start >= next.end) return;
  if (!set.empty() && next.start <= set.back().end) {
    set.back().end = std::max(set.back().end, next.end);
  } else {
    set.push_back(next);
  }
}

bool starts_earlier(const Interval& a, const Interval& b) {
  return a.start < b.start;
}

}  // namespace

IntervalSet normalize(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(), starts_earlier);
  IntervalSet set;
  for (const Interval& interval : intervals) append(set, interval);
  return set;
}

IntervalSet unite(const IntervalSet& a, const IntervalSet& b) {
  std::vector<Interval> merged;
  merged.reserve(a.size() + b.size());
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(merged), starts_earlier);
  IntervalSet set;
  for (const Interval& interval : merged) append(set, interval);
  return set;
}

IntervalSet intersect(const IntervalSet& a, const IntervalSet& b) {
  IntervalSet set;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    append(set, {std::max(a[i].start, b[j].start), std::min(a[i].end, b[j].end)});
    if (a[i].end < b[j].end) {
      ++i;
    } else {
      ++j;
    }
  }
  return set;
}

IntervalSet subtract(const IntervalSet& a, const IntervalSet& b) {
  IntervalSet set;
  size_t j = 0;
  for (Interval rest : a) {
    while (j < b.size() && b[j].end <= rest.start) ++j;
    for (size_t k = j; k < b.size() && b[k].start < rest.end; ++k) {
      append(set, {rest.start, b[k].start});
      rest.start = b[k].end;
      j = k;  // b[k] may reach into the next interval of a
    }
    append(set, rest);
  }
  return set;
}

IntervalSet clip(const IntervalSet& a, int64_t start, int64_t end) {
  IntervalSet set;
  auto first = std::partition_point(a.begin(), a.end(), [&](const Interval& i) { return i.end <= start; });
  for (; first != a.end() && first->start < end; ++first) {
    append(set, {std::max(first->start, start), std::min(first->end, end)});
  }
  return set;
}

int64_t length(const IntervalSet& a) {
  int64_t sum = 0;
  for (const Interval& interval : a) sum += interval.end - interval.start;
  return sum;
}

}  // namespace taut::metrics
