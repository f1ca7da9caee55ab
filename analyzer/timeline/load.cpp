// load(): a trace file into a Timeline, table by table.
#include <algorithm>
#include <limits>
#include <utility>

#include "analyzer/timeline/loading.h"
#include "taut.h"

namespace taut::timeline {
namespace {

constexpr int64_t kMostRanks = 1 << 20;

// Anything that load() can make slices or steps of.
constexpr std::string_view kUsefulTables[] = {"NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY",
                                              "CUPTI_ACTIVITY_KIND_RUNTIME", "TAUT_STEP"};

template <class Event>
void sort_by_start(std::vector<Event>& events) {
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.start < b.start; });
}

// A restart from a checkpoint runs some steps twice: the last run of a step counts.
void keep_last_run_of_each_step(Rank& rank, Quality& quality) {
  std::map<int64_t, size_t> last;
  for (size_t i = 0; i < rank.steps.size(); ++i) last[rank.steps[i].step] = i;
  if (last.size() == rank.steps.size()) return;
  quality.warnings.push_back("rank " + std::to_string(rank.rank) + " ran " +
                             std::to_string(rank.steps.size() - last.size()) +
                             " steps more than once (a restart?); the last run of each counts");
  std::vector<Step> kept;
  for (const auto& [step, index] : last) kept.push_back(rank.steps[index]);
  rank.steps = std::move(kept);
  sort_by_start(rank.steps);
}

void finish_ranks(Draft& draft) {
  for (auto& [number, rank] : draft.ranks) {
    sort_by_start(rank.steps);
    keep_last_run_of_each_step(rank, draft.timeline.quality);
    sort_by_start(rank.microbatches);
    sort_by_start(rank.collectives);
    sort_by_start(rank.loader_work);
    std::stable_sort(rank.batches.begin(), rank.batches.end(),
                     [](const Batch& a, const Batch& b) { return a.wait_start < b.wait_start; });
    std::stable_sort(rank.tensor_uses.begin(), rank.tensor_uses.end(),
                     [](const TensorUse& a, const TensorUse& b) { return a.time < b.time; });
    std::stable_sort(rank.expert_loads.begin(), rank.expert_loads.end(),
                     [](const ExpertLoad& a, const ExpertLoad& b) { return a.time < b.time; });
    std::stable_sort(rank.memory.begin(), rank.memory.end(),
                     [](const MemorySample& a, const MemorySample& b) { return a.time < b.time; });
    draft.timeline.ranks.push_back(std::move(rank));
  }
}

void measure_extent(Timeline& timeline) {
  int64_t first = std::numeric_limits<int64_t>::max(), last = std::numeric_limits<int64_t>::min();
  for (const Lane& lane : timeline.lanes) {
    timeline.events += static_cast<int64_t>(lane.slices.size());
    if (lane.slices.size() == 0) continue;
    first = std::min(first, lane.slices.start.front());
    last = std::max(last, *std::max_element(lane.slices.end.begin(), lane.slices.end.end()));
  }
  for (const Rank& rank : timeline.ranks) {
    for (const Step& step : rank.steps) {
      first = std::min(first, step.start);
      last = std::max(last, step.end);
    }
  }
  if (first <= last) {
    timeline.start_ns = first;
    timeline.end_ns = last;
  }
}

}  // namespace

uint32_t NameTable::intern(std::string_view text) {
  const auto [entry, added] = by_text_.try_emplace(std::string(text), static_cast<uint32_t>(names_.size()));
  if (added) names_.emplace_back(text);
  return entry->second;
}

uint32_t NameTable::intern_id(int64_t string_id) {
  const auto known = by_id_.find(string_id);
  if (known != by_id_.end()) return known->second;
  const uint32_t name = intern(strings_[string_id]);
  by_id_.emplace(string_id, name);
  return name;
}

const NvtxRow* Draft::find_nvtx(int64_t rowid) const {
  const auto found = std::lower_bound(nvtx_rows.begin(), nvtx_rows.end(), rowid,
                                      [](const NvtxRow& row, int64_t id) { return row.rowid < id; });
  return found != nvtx_rows.end() && found->rowid == rowid ? &*found : nullptr;
}

Rank* Draft::rank(int64_t number) {
  if (number < 0 || number >= kMostRanks) return nullptr;
  const auto [entry, added] = ranks.try_emplace(static_cast<int32_t>(number));
  if (added) {
    entry->second.rank = static_cast<int32_t>(number);
    if (reader.has("TAUT_RANK")) {
      timeline.quality.warnings.push_back("rank " + std::to_string(number) +
                                          " has events but no TAUT_RANK row; its place in the mesh is unknown");
    }
  }
  return &entry->second;
}

Timeline load(const std::filesystem::path& path) {
  const store::Reader reader(path.string());
  const bool useful = std::any_of(std::begin(kUsefulTables), std::end(kUsefulTables),
                                  [&](std::string_view table) { return reader.has(table); });
  if (!useful) {
    throw Error(path.string() + " holds no trace: none of the tables NVTX_EVENTS, CUPTI_ACTIVITY_KIND_* and TAUT_STEP",
                "give a file that `taut train --trace`, `taut trace` or `nsys export --type sqlite` wrote");
  }
  Timeline timeline;
  timeline.path = path.string();
  Draft draft(reader, timeline);
  read_meta(draft);
  read_event_kinds(draft);
  read_nvtx(draft);
  read_gpu(draft);
  read_events(draft);
  assign_ranks(draft);
  finish_ranks(draft);
  build_lanes(draft);
  find_steps(draft);
  measure_extent(timeline);
  if (timeline.quality.rejected_rows > 0) {
    timeline.quality.warnings.push_back(std::to_string(timeline.quality.rejected_rows) +
                                        " rows were left out: they end before they start, or refer to rows or ranks "
                                        "that do not exist");
  }
  if (timeline.quality.dropped_events > 0) {
    timeline.quality.warnings.push_back(std::to_string(timeline.quality.dropped_events) +
                                        " events were lost while tracing (full buffers); totals are too small");
  }
  return timeline;
}

}  // namespace taut::timeline
