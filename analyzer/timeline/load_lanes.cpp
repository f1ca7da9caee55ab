// Collected slices become lanes: owners, titles, order, kinds that depend on the rank, and launches.
#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "analyzer/timeline/loading.h"
#include "tracer/store/ids.h"

namespace taut::timeline {
namespace {

using Slot = std::pair<uint32_t, uint32_t>;  // lane, slice

// Where each lane goes and whose it is, decided before any lane is built.
struct Plan {
  const LaneKey* key = nullptr;
  std::vector<RawSlice>* raw = nullptr;
  Lane lane;
};

int32_t owner_of(const Draft& draft, const LaneKey& key) {
  const int64_t pid = store::global_pid_of(key.global_tid);
  if (key.type == LaneType::gpu_stream) {
    const auto device = draft.rank_by_device.find({pid, key.device});
    if (device != draft.rank_by_device.end()) return device->second;
  }
  const auto loader = draft.loader_threads.find(key.global_tid);
  if (loader != draft.loader_threads.end()) return loader->second.first;
  const auto process = draft.rank_by_pid.find(pid);
  return process == draft.rank_by_pid.end() ? -1 : process->second;
}

// The thread that trains carries the steps; where none does, the one that is busy longest.
void find_trainer_threads(std::vector<Plan>& plans, const std::vector<Rank>& ranks) {
  for (const Rank& rank : ranks) {
    Plan* best = nullptr;
    std::pair<bool, int64_t> best_score{false, -1};
    for (Plan& plan : plans) {
      if (plan.lane.rank != rank.rank || plan.lane.type != LaneType::other_thread) continue;
      bool has_steps = false;
      int64_t busy_ns = 0;
      for (const RawSlice& slice : *plan.raw) {
        has_steps |= slice.kind == Kind::step;
        busy_ns += slice.end - slice.start;
      }
      if (std::pair(has_steps, busy_ns) > best_score) {
        best = &plan;
        best_score = {has_steps, busy_ns};
      }
    }
    if (best) best->lane.type = LaneType::trainer;
  }
}

std::string title_of(const Draft& draft, const LaneKey& key, const Lane& lane) {
  const std::string rank = lane.rank < 0 ? "" : "rank " + std::to_string(lane.rank) + " ";
  const std::string thread = std::to_string(store::tid_of(key.global_tid));
  switch (lane.type) {
    case LaneType::trainer:
      return rank + "trainer";
    case LaneType::loader:
      return rank + "loader " + std::to_string(draft.loader_threads.at(key.global_tid).second);
    case LaneType::collectives:
      return rank + "collectives";
    case LaneType::ranges:
      return rank + "ranges";
    case LaneType::gpu_stream:
      return rank + "GPU " + std::to_string(key.device) + " stream " + std::to_string(key.stream);
    case LaneType::cuda_api:
      return rank + "CUDA API, thread " + thread;
    case LaneType::other_thread:
      break;
  }
  return rank + "thread " + thread;
}

// A host thread of a rank that computes on a GPU only launches work.
void host_ops_launch_work(const Draft& draft, const std::set<int32_t>& gpu_ranks, Plan& plan) {
  if (!gpu_ranks.contains(plan.lane.rank) || plan.lane.type == LaneType::gpu_stream) return;
  for (RawSlice& slice : *plan.raw) {
    const bool typed = draft.kind_by_event.contains(slice.rowid) && slice.table == Table::nvtx;
    if (slice.kind == Kind::compute && !typed) slice.kind = Kind::host;
  }
}

// Waiting for a neighbour's tensor is a pipeline wait, waiting for anything else communication.
void mark_pipeline_waits(const Rank& rank, Slices& slices) {
  std::set<std::pair<int64_t, int64_t>> waits;
  for (const Collective& c : rank.collectives) {
    if ((c.op == Op::recv || c.op == Op::send) && c.wait_end > c.wait_start) waits.insert({c.wait_start, c.wait_end});
  }
  if (waits.empty()) return;
  for (size_t i = 0; i < slices.size(); ++i) {
    if (slices.kind[i] == Kind::communication && waits.contains({slices.start[i], slices.end[i]})) {
      slices.kind[i] = Kind::pipeline_wait;
    }
  }
}

void match_launches(Timeline& timeline, const std::map<std::pair<int64_t, int64_t>, std::vector<Slot>>& calls,
                    const std::vector<std::pair<std::pair<int64_t, int64_t>, Slot>>& gpu_work) {
  for (const auto& [key, slot] : gpu_work) {
    const auto found = calls.find(key);
    if (found == calls.end()) {
      ++timeline.quality.unmatched_correlations;
      continue;
    }
    for (const Slot& call : found->second) {
      timeline.launches.push_back({call.first, call.second, slot.first, slot.second});
    }
  }
}

}  // namespace

void assign_ranks(Draft& draft) {
  if (!draft.ranks.empty()) return;
  std::set<std::pair<int32_t, int64_t>> devices;  // (device, process), in the order in which ranks are numbered
  std::set<int64_t> processes;
  for (const auto& [key, raw] : draft.slices) {
    const int64_t pid = store::global_pid_of(key.global_tid);
    if (key.type == LaneType::gpu_stream) devices.insert({key.device, pid});
    const bool works = std::any_of(raw.begin(), raw.end(), [](const RawSlice& slice) {
      return slice.kind == Kind::step || slice.kind == Kind::compute;
    });
    if (key.type == LaneType::other_thread && works) processes.insert(pid);
  }
  int32_t number = 0;
  const auto add = [&](int64_t pid, int32_t device) {
    Rank& rank = draft.ranks[number];
    rank.rank = rank.dp = number;
    rank.global_pid = pid;
    rank.device = device;
    draft.rank_by_pid.try_emplace(pid, number);
    if (device >= 0) draft.rank_by_device[{pid, device}] = number;
    ++number;
  };
  for (const auto& [device, pid] : devices) add(pid, device);
  if (devices.empty()) {
    for (int64_t pid : processes) add(pid, -1);
  }
}

void build_lanes(Draft& draft) {
  Timeline& timeline = draft.timeline;
  std::vector<Plan> plans;
  std::set<int32_t> gpu_ranks;
  for (auto& [key, raw] : draft.slices) {
    Plan plan{&key, &raw, {}};
    plan.lane.type = draft.loader_threads.contains(key.global_tid) ? LaneType::loader : key.type;
    plan.lane.rank = owner_of(draft, key);
    plan.lane.global_tid = key.global_tid;
    plan.lane.device = key.device;
    plan.lane.stream = key.stream;
    if (key.type == LaneType::gpu_stream) gpu_ranks.insert(plan.lane.rank);
    plans.push_back(std::move(plan));
  }
  find_trainer_threads(plans, timeline.ranks);
  std::stable_sort(plans.begin(), plans.end(), [](const Plan& a, const Plan& b) {
    const auto order = [](const Plan& p) {  // lanes of no rank come last
      return std::tuple(p.lane.rank < 0, p.lane.rank, p.lane.type, p.lane.device, p.lane.stream);
    };
    return order(a) < order(b);
  });

  std::map<std::pair<int64_t, int64_t>, std::vector<Slot>> calls;  // (process, correlation id) -> CUDA calls
  std::vector<std::pair<std::pair<int64_t, int64_t>, Slot>> gpu_work;
  for (Plan& plan : plans) {
    host_ops_launch_work(draft, gpu_ranks, plan);
    plan.lane.title = title_of(draft, *plan.key, plan.lane);
    const bool overlaps = plan.lane.type == LaneType::collectives || plan.lane.type == LaneType::ranges ||
                          plan.lane.type == LaneType::gpu_stream;
    build_lane(*plan.raw, overlaps ? Layout::packed : Layout::nested, plan.lane);

    const uint32_t lane = static_cast<uint32_t>(timeline.lanes.size());
    const int64_t pid = store::global_pid_of(plan.key->global_tid);
    for (uint32_t i = 0; i < plan.raw->size(); ++i) {
      const RawSlice& slice = (*plan.raw)[i];
      if (slice.correlation < 0) continue;
      if (slice.table == Table::runtime) {
        calls[{pid, slice.correlation}].push_back({lane, i});
      } else {
        gpu_work.push_back({{pid, slice.correlation}, {lane, i}});
      }
    }
    *plan.raw = {};
    timeline.lanes.push_back(std::move(plan.lane));
  }
  if (draft.reader.has("CUPTI_ACTIVITY_KIND_RUNTIME")) match_launches(timeline, calls, gpu_work);

  for (uint32_t i = 0; i < timeline.lanes.size(); ++i) {
    Lane& lane = timeline.lanes[i];
    const auto rank =
        std::find_if(timeline.ranks.begin(), timeline.ranks.end(), [&](const Rank& r) { return r.rank == lane.rank; });
    if (rank == timeline.ranks.end()) continue;
    rank->lanes.push_back(i);
    if (lane.type == LaneType::trainer) {
      rank->trainer_lane = static_cast<int32_t>(i);
      mark_pipeline_waits(*rank, lane.slices);
    }
    rank->has_gpu_slices |= lane.type == LaneType::gpu_stream;
  }
}

}  // namespace taut::timeline
