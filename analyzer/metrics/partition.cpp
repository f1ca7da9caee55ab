#include "analyzer/metrics/partition.h"

#include <algorithm>
#include <limits>
#include <set>

namespace taut::metrics {

using timeline::Collective;
using timeline::Kind;
using timeline::LaneType;
using timeline::Rank;

// Everything of one rank that can claim time, over the whole trace. Layers by falling precedence.
struct Partitioner::RankSets {
  bool device_view = false;
  std::vector<std::vector<Segment>> layers;  // sorted by start
  IntervalSet transfers;                     // bytes in flight, exposed or hidden
  Category rest = Category::host;
};

namespace {

constexpr int32_t kNobody = -1;

void add_all(std::vector<Segment>& layer, const IntervalSet& set, Category category, int32_t waits_for = kNobody) {
  for (const Interval& i : set) layer.push_back({i.start, i.end, category, waits_for});
}

std::vector<Segment> layer_of(const IntervalSet& set, Category category) {
  std::vector<Segment> layer;
  add_all(layer, set, category);
  return layer;
}

template <class Wanted>
IntervalSet slices_where(const timeline::Timeline& timeline, const std::vector<uint32_t>& lanes, Wanted wanted) {
  std::vector<Interval> intervals;
  for (uint32_t index : lanes) {
    const timeline::Lane& lane = timeline.lanes[index];
    for (size_t i = 0; i < lane.slices.size(); ++i) {
      if (wanted(lane, lane.slices.kind[i])) intervals.push_back({lane.slices.start[i], lane.slices.end[i]});
    }
  }
  return normalize(std::move(intervals));
}

// The part of a layer's segment that lies in a step.
struct Claim {
  int64_t start, end;
  size_t layer;
  const Segment* segment;
};

void claim(const std::vector<Segment>& layer, size_t number, int64_t start, int64_t end, std::vector<Claim>& claims) {
  auto segment = std::partition_point(layer.begin(), layer.end(), [&](const Segment& s) { return s.end <= start; });
  for (; segment != layer.end() && segment->start < end; ++segment) {
    const Claim c{std::max(segment->start, start), std::min(segment->end, end), number, &*segment};
    if (c.start < c.end) claims.push_back(c);
  }
}

// Makes a layer's segments disjoint (the earlier one wins), so that it is sorted by start and by end.
void make_disjoint(std::vector<Segment>& layer) {
  std::stable_sort(layer.begin(), layer.end(), [](const Segment& a, const Segment& b) { return a.start < b.start; });
  std::vector<Segment> disjoint;
  for (Segment s : layer) {
    if (!disjoint.empty()) s.start = std::max(s.start, disjoint.back().end);
    if (s.start < s.end) disjoint.push_back(s);
  }
  layer = std::move(disjoint);
}

// Sweeps over all claims' boundaries; of the claims that hold, the lowest layer gets the time.
std::vector<Segment> settle(std::vector<Claim> claims, int64_t start, int64_t end, Category rest) {
  struct Edge {
    int64_t time;
    bool opens;
    size_t claim;
  };
  std::vector<Edge> edges;
  for (size_t i = 0; i < claims.size(); ++i) {
    edges.push_back({claims[i].start, true, i});
    edges.push_back({claims[i].end, false, i});
  }
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.time < b.time; });

  std::vector<Segment> segments;
  std::set<std::pair<size_t, size_t>> active;  // layer, claim
  int64_t now = start;
  const auto advance = [&](int64_t time) {
    if (time <= now) return;
    Segment next{now, time, rest, kNobody};
    if (!active.empty()) {
      const Segment& winner = *claims[active.begin()->second].segment;
      next.category = winner.category;
      next.waits_for = winner.waits_for;
    }
    if (!segments.empty() && segments.back().category == next.category && segments.back().waits_for == next.waits_for) {
      segments.back().end = time;
    } else {
      segments.push_back(next);
    }
    now = time;
  };
  for (const Edge& edge : edges) {
    advance(edge.time);
    const std::pair key(claims[edge.claim].layer, edge.claim);
    if (edge.opens) {
      active.insert(key);
    } else {
      active.erase(key);
    }
  }
  advance(end);
  return segments;
}

}  // namespace

Partitioner::Partitioner(const timeline::Timeline& timeline) : timeline_(timeline), peers_(timeline) {
  bool has_stages = false;
  for (const Rank& rank : timeline.ranks) {
    has_stages |= rank.pp > 0;
    std::vector<Interval> waits;
    for (const timeline::Batch& batch : rank.batches) waits.push_back({batch.wait_start, batch.wait_end});
    batch_waits_[rank.rank] = normalize(std::move(waits));
  }
  if (!has_stages) return;
  using PipelineStep = std::tuple<int32_t, int32_t, int32_t, int64_t>;  // dp, tp, cp, step
  std::map<PipelineStep, Interval> step_spans;
  for (const Rank& rank : timeline.ranks) {
    for (const timeline::Microbatch& pass : rank.microbatches) {
      const auto [entry, added] =
          step_spans.try_emplace(PipelineStep(rank.dp, rank.tp, rank.cp, pass.step), Interval{pass.start, pass.end});
      if (added) continue;
      entry->second.start = std::min(entry->second.start, pass.start);
      entry->second.end = std::max(entry->second.end, pass.end);
    }
  }
  std::map<std::tuple<int32_t, int32_t, int32_t>, std::vector<Interval>> spans;
  for (const auto& [key, span] : step_spans) {
    spans[{std::get<0>(key), std::get<1>(key), std::get<2>(key)}].push_back(span);
  }
  for (auto& [pipeline, intervals] : spans) pipeline_active_[pipeline] = normalize(std::move(intervals));
}

void Partitioner::add_peer_wait(const Rank& rank, const PeerIndex::PeerWait& wait,
                                std::vector<Segment>& segments) const {
  const Rank* peer = timeline_.find_rank(wait.peer);
  IntervalSet rest{{wait.start, wait.end}};
  if (!peer) {
    add_all(segments, rest, Category::exposed_communication, wait.peer);
    return;
  }
  const IntervalSet peer_loads = clip(batch_waits_.at(peer->rank), wait.start, wait.end);
  const bool same_replica = peer->dp == rank.dp && peer->cp == rank.cp;
  const bool same_stage = peer->pp == rank.pp;
  if (same_replica && same_stage && rank.batches.empty()) {
    add_all(segments, peer_loads, Category::loader_stall, wait.peer);
    rest = subtract(rest, peer_loads);
  }
  const auto active = pipeline_active_.find({rank.dp, rank.tp, rank.cp});
  if (!same_stage && active != pipeline_active_.end()) {
    const IntervalSet bubble = intersect(rest, clip(active->second, wait.start, wait.end));
    add_all(segments, bubble, Category::pipeline_bubble, wait.peer);
    rest = subtract(rest, bubble);
    if (same_replica) {
      const IntervalSet late = intersect(rest, peer_loads);
      add_all(segments, late, Category::loader_stall, wait.peer);
      rest = subtract(rest, late);
    }
  }
  add_all(segments, rest, Category::exposed_communication, wait.peer);
}

Partitioner::RankSets Partitioner::collect(const Rank& rank) const {
  RankSets sets;
  sets.device_view = rank.has_gpu_slices;
  std::vector<uint32_t> trainer;
  if (rank.trainer_lane >= 0) trainer.push_back(static_cast<uint32_t>(rank.trainer_lane));
  const auto host_kind = [&](Kind wanted) {
    return slices_where(timeline_, trainer, [&](const timeline::Lane&, Kind kind) { return kind == wanted; });
  };
  const auto gpu_kind = [&](Kind wanted) {
    return slices_where(timeline_, rank.lanes, [&](const timeline::Lane& lane, Kind kind) {
      return lane.type == LaneType::gpu_stream && kind == wanted;
    });
  };

  std::vector<Segment> waits;
  std::vector<Interval> transfers;
  for (const Collective& c : rank.collectives) {
    const auto issue = peers_.last_other_issue(rank.rank, c);
    transfers.push_back({issue ? std::max(c.start, std::min(issue->time, c.end)) : c.start, c.end});
    const auto peer_wait = peers_.wait_for_peer(rank.rank, c);
    if (peer_wait) add_peer_wait(rank, *peer_wait, waits);
    const int64_t in_flight = peer_wait ? peer_wait->end : c.wait_start;
    if (!sets.device_view && in_flight < c.wait_end) {
      waits.push_back({in_flight, c.wait_end, Category::exposed_communication, kNobody});
    }
  }
  const IntervalSet loads = unite(batch_waits_.at(rank.rank), host_kind(Kind::loader));
  const auto checkpoints = layer_of(host_kind(Kind::checkpoint), Category::checkpoint);

  if (sets.device_view) {
    const IntervalSet communication = gpu_kind(Kind::communication);
    std::erase_if(waits, [](const Segment& s) { return s.category == Category::exposed_communication; });
    sets.layers = {layer_of(gpu_kind(Kind::compute), Category::compute),
                   std::move(waits),
                   layer_of(communication, Category::exposed_communication),
                   layer_of(gpu_kind(Kind::copy), Category::copy),
                   checkpoints,
                   layer_of(loads, Category::loader_stall)};
    sets.transfers = communication;
    sets.rest = Category::idle;
  } else {
    IntervalSet compute = host_kind(Kind::compute);
    if (rank.microbatches.empty()) {  // another program's trace: its backward may run on a thread of its own
      compute = unite(compute, slices_where(timeline_, rank.lanes, [](const timeline::Lane& lane, Kind kind) {
                        return lane.type == LaneType::other_thread && kind == Kind::compute;
                      }));
    }
    if (rank.collectives.empty()) {  // blocking calls of its communication library
      add_all(waits, host_kind(Kind::communication), Category::exposed_communication);
      sets.transfers = host_kind(Kind::communication);
    } else {
      sets.transfers = normalize(std::move(transfers));
    }
    sets.layers = {checkpoints, layer_of(loads, Category::loader_stall), std::move(waits),
                   layer_of(compute, Category::compute), layer_of(host_kind(Kind::copy), Category::copy)};
  }
  for (auto& layer : sets.layers) make_disjoint(layer);
  return sets;
}

StepPartition Partitioner::partition_step(const RankSets& sets, int64_t step, int64_t start, int64_t end) const {
  std::vector<Claim> claims;
  for (size_t layer = 0; layer < sets.layers.size(); ++layer) claim(sets.layers[layer], layer, start, end, claims);
  StepPartition result{step, start, end, settle(std::move(claims), start, end, sets.rest), {}, 0, 0};

  std::vector<Interval> exposed, compute;
  for (const Segment& s : result.segments) {
    result.ns[s.category] += s.end - s.start;
    if (s.category == Category::exposed_communication) exposed.push_back({s.start, s.end});
    if (s.category == Category::compute) compute.push_back({s.start, s.end});
  }
  const IntervalSet transfers = clip(sets.transfers, start, end);
  result.communication_ns = length(unite(transfers, exposed));
  result.overlapped_ns = length(intersect(transfers, compute));
  return result;
}

std::vector<StepPartition> Partitioner::partition(const Rank& rank, const StepRange& range) const {
  std::vector<StepPartition> partitions;
  const RankSets sets = collect(rank);
  for (const timeline::Step& step : rank.steps) {
    if (range.contains(step.step)) partitions.push_back(partition_step(sets, step.step, step.start, step.end));
  }
  return partitions;
}

std::vector<StepPartition> Partitioner::partition_whole_span(const Rank& rank) const {
  int64_t first = std::numeric_limits<int64_t>::max(), last = std::numeric_limits<int64_t>::min();
  for (uint32_t index : rank.lanes) {
    const timeline::Lane& lane = timeline_.lanes[index];
    if (lane.type != LaneType::gpu_stream || lane.slices.size() == 0) continue;
    first = std::min(first, lane.slices.start.front());
    last = std::max(last, *std::max_element(lane.slices.end.begin(), lane.slices.end.end()));
  }
  if (first >= last) return {};
  return {partition_step(collect(rank), 0, first, last)};
}

}  // namespace taut::metrics
