// The steps of load(): each reads some tables into a Draft, which becomes the Timeline. Internal to this folder.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analyzer/timeline/lane_builder.h"
#include "analyzer/timeline/timeline.h"
#include "tracer/store/reader.h"

namespace taut::timeline {

/// Interns names into Timeline::names.
class NameTable {
 public:
  NameTable(const store::Reader& reader, std::vector<std::string>& names) : strings_(reader.strings()), names_(names) {}

  uint32_t intern(std::string_view text);
  /// The name of a StringIds row.
  uint32_t intern_id(int64_t string_id);
  std::string_view string(int64_t string_id) const { return strings_[string_id]; }

 private:
  store::Strings strings_;
  std::vector<std::string>& names_;
  std::unordered_map<std::string, uint32_t> by_text_;
  std::unordered_map<int64_t, uint32_t> by_id_;
};

/// An NVTX row that a TAUT_* row may refer to by `eventId`.
struct NvtxRow {
  int64_t rowid = 0, start = 0, end = 0, global_tid = 0;
};

/// What a thread's, process's or stream's slices are collected under until all tables are read.
struct LaneKey {
  LaneType type = LaneType::other_thread;
  int64_t global_tid = 0;
  int32_t device = -1, stream = -1;
  auto operator<=>(const LaneKey&) const = default;
};

struct Draft {
  const store::Reader& reader;
  Timeline& timeline;
  NameTable names;
  std::map<LaneKey, std::vector<RawSlice>> slices;
  std::vector<NvtxRow> nvtx_rows;                                 // sorted by rowid
  std::unordered_map<int64_t, Kind> kind_by_event;                // NVTX rowid -> kind, from the TAUT_* tables
  std::map<int64_t, std::pair<int32_t, int32_t>> loader_threads;  // globalTid -> rank, worker
  std::map<int32_t, Rank> ranks;
  std::unordered_map<int64_t, int32_t> rank_by_pid;               // globalPid -> rank
  std::map<std::pair<int64_t, int32_t>, int32_t> rank_by_device;  // (globalPid, device), where TAUT_RANK is absent

  Draft(const store::Reader& reader, Timeline& timeline)
      : reader(reader), timeline(timeline), names(reader, timeline.names) {}

  /// The NVTX row, or null when the id dangles.
  const NvtxRow* find_nvtx(int64_t rowid) const;
  /// The rank with this number, added (with a warning) where TAUT_RANK lacks it; null for an impossible number.
  Rank* rank(int64_t number);
  /// True for a span that ends after it starts and lies within decades of the session start, so that sums of times
  /// cannot overflow.
  static bool sensible(int64_t start, int64_t end) {
    constexpr int64_t kFarthest = int64_t{1} << 60;
    return start <= end && start > -kFarthest && end < kFarthest;
  }
  /// Counts a row that makes no sense.
  void reject() { ++timeline.quality.rejected_rows; }
};

// In this order:
void read_meta(Draft& draft);         // TAUT_META, TAUT_RANK, TAUT_GROUP, TAUT_CLOCK, TAUT_LOSS, META_DATA_EXPORT, …
void read_event_kinds(Draft& draft);  // which NVTX rows the TAUT_* tables describe
void read_nvtx(Draft& draft);         // NVTX_EVENTS
void read_gpu(Draft& draft);          // CUPTI_*
void read_events(Draft& draft);       // TAUT_STEP, TAUT_COLLECTIVE, …
void assign_ranks(Draft& draft);      // for files without TAUT_RANK
void build_lanes(Draft& draft);       // slices -> Timeline::lanes, launches
void find_steps(Draft& draft);        // steps of foreign traces

}  // namespace taut::timeline
