#include "analyzer/timeline/lane_builder.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

namespace taut::timeline {
namespace {

constexpr size_t kDeepest = std::numeric_limits<uint16_t>::max();
constexpr int kParentSearch = 256;  // bounds the work on a damaged file whose ranges all cross

void nest(Slices& slices) {
  std::vector<int32_t> open;
  for (size_t i = 0; i < slices.size(); ++i) {
    while (!open.empty() && slices.end[open.back()] <= slices.start[i]) open.pop_back();
    slices.depth[i] = static_cast<uint16_t>(std::min(open.size(), kDeepest));
    // Ranges of a thread nest, but a damaged file may hold crossing ones: the parent is the innermost that contains.
    int searched = 0;
    for (auto candidate = open.rbegin(); candidate != open.rend() && searched < kParentSearch;
         ++candidate, ++searched) {
      if (slices.end[*candidate] >= slices.end[i]) {
        slices.parent[i] = *candidate;
        break;
      }
    }
    open.push_back(static_cast<int32_t>(i));
  }
}

void pack(Slices& slices) {
  using EndAndDepth = std::pair<int64_t, uint16_t>;
  std::priority_queue<EndAndDepth, std::vector<EndAndDepth>, std::greater<>> busy;
  std::priority_queue<uint16_t, std::vector<uint16_t>, std::greater<>> free;
  size_t depths = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    while (!busy.empty() && busy.top().first <= slices.start[i]) {
      free.push(busy.top().second);
      busy.pop();
    }
    uint16_t depth = static_cast<uint16_t>(std::min(depths, kDeepest));
    if (free.empty()) {
      ++depths;
    } else {
      depth = free.top();
      free.pop();
    }
    slices.depth[i] = depth;
    busy.push({slices.end[i], depth});
  }
}

}  // namespace

void build_lane(std::vector<RawSlice>& raw, Layout layout, Lane& lane) {
  std::sort(raw.begin(), raw.end(), [](const RawSlice& a, const RawSlice& b) {
    if (a.start != b.start) return a.start < b.start;
    if (a.end != b.end) return a.end > b.end;
    return a.rowid > b.rowid;  // rows arrive when ranges end, so the outer one arrives later
  });
  Slices& slices = lane.slices;
  const size_t n = raw.size();
  slices.start.reserve(n), slices.end.reserve(n), slices.name.reserve(n), slices.kind.reserve(n);
  slices.table.reserve(n), slices.rowid.reserve(n);
  for (const RawSlice& slice : raw) {
    slices.start.push_back(slice.start);
    slices.end.push_back(slice.end);
    slices.name.push_back(slice.name);
    slices.kind.push_back(slice.kind);
    slices.table.push_back(slice.table);
    slices.rowid.push_back(slice.rowid);
  }
  slices.depth.assign(n, 0);
  slices.parent.assign(n, -1);
  if (layout == Layout::nested) {
    nest(slices);
  } else {
    pack(slices);
  }
  lane.max_depth = n == 0 ? 0 : *std::max_element(slices.depth.begin(), slices.depth.end());
}

}  // namespace taut::timeline
