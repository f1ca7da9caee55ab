#include "analyzer/metrics/statistics.h"

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>

#include "analyzer/metrics/intervals.h"

namespace taut::metrics {

using timeline::Kind;
using timeline::Lane;
using timeline::LaneType;

std::vector<OperationTotal> operation_totals(const timeline::Timeline& timeline, GroupBy by, int32_t rank) {
  std::vector<OperationTotal> totals;
  std::unordered_map<uint64_t, size_t> index;  // name, kind or lane number -> row of totals
  for (size_t lane_number = 0; lane_number < timeline.lanes.size(); ++lane_number) {
    const Lane& lane = timeline.lanes[lane_number];
    if (rank >= 0 && lane.rank != rank) continue;
    const auto& slices = lane.slices;
    std::vector<int64_t> self(slices.size());
    for (size_t i = 0; i < slices.size(); ++i) {
      const int64_t duration = slices.end[i] - slices.start[i];
      self[i] += duration;
      if (slices.parent[i] >= 0) self[slices.parent[i]] -= duration;
    }
    for (size_t i = 0; i < slices.size(); ++i) {
      const uint64_t key = by == GroupBy::name   ? slices.name[i]
                           : by == GroupBy::kind ? static_cast<uint64_t>(slices.kind[i])
                                                 : lane_number;
      const auto [entry, added] = index.try_emplace(key, totals.size());
      if (added) {
        const std::string text = by == GroupBy::name   ? timeline.names[slices.name[i]]
                                 : by == GroupBy::kind ? timeline::kind_name(slices.kind[i])
                                                       : lane.title;
        totals.push_back({.key = text, .kind = slices.kind[i], .min_ns = std::numeric_limits<int64_t>::max()});
      }
      OperationTotal& total = totals[entry->second];
      const int64_t duration = slices.end[i] - slices.start[i];
      ++total.count;
      total.total_ns += duration;
      total.self_ns += std::max<int64_t>(0, self[i]);
      total.min_ns = std::min(total.min_ns, duration);
      total.max_ns = std::max(total.max_ns, duration);
    }
  }
  std::stable_sort(totals.begin(), totals.end(),
                   [](const OperationTotal& a, const OperationTotal& b) { return a.self_ns > b.self_ns; });
  return totals;
}

std::vector<DeviceTotal> device_totals(const timeline::Timeline& timeline) {
  struct Work {
    std::vector<Interval> computation, communication, copies;
  };
  std::map<std::pair<int32_t, int32_t>, Work> devices;  // rank, device
  for (const Lane& lane : timeline.lanes) {
    if (lane.type != LaneType::gpu_stream) continue;
    Work& work = devices[{lane.rank, lane.device}];
    for (size_t i = 0; i < lane.slices.size(); ++i) {
      auto& intervals = lane.slices.kind[i] == Kind::communication ? work.communication
                        : lane.slices.kind[i] == Kind::copy        ? work.copies
                                                                   : work.computation;
      intervals.push_back({lane.slices.start[i], lane.slices.end[i]});
    }
  }
  std::vector<DeviceTotal> totals;
  for (auto& [key, work] : devices) {
    const IntervalSet computation = normalize(std::move(work.computation));
    const IntervalSet communication = normalize(std::move(work.communication));
    const IntervalSet copies = normalize(std::move(work.copies));
    const IntervalSet working = unite(computation, communication);
    const IntervalSet busy = unite(working, copies);
    if (busy.empty()) continue;
    DeviceTotal total{.rank = key.first, .device = key.second};
    total.total_ns = busy.back().end - busy.front().start;
    total.computation_ns = length(computation);
    total.communication_ns = length(communication);
    total.exposed_communication_ns = length(subtract(communication, computation));
    total.exposed_copy_ns = length(subtract(copies, working));
    total.idle_ns = total.total_ns - length(busy);
    totals.push_back(total);
  }
  return totals;
}

}  // namespace taut::metrics
