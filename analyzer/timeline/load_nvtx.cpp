// NVTX_EVENTS: ranges become slices of their thread, start/end ranges of their process; marks only answer `eventId`s.
#include <algorithm>
#include <limits>

#include "analyzer/timeline/classification.h"
#include "analyzer/timeline/loading.h"
#include "tracer/store/ids.h"
#include "tracer/store/schema.h"

namespace taut::timeline {
namespace {

// (process, domain id) -> name. Domain 0 is NVTX's default domain.
std::map<std::pair<int64_t, int64_t>, std::string> read_domains(Draft& draft) {
  std::map<std::pair<int64_t, int64_t>, std::string> domains;
  auto rows = draft.reader.rows("NVTX_EVENTS", {"eventType", "domainId", "text", "textId", "globalTid"});
  while (rows.next()) {
    if (rows.integer(0) != store::kNvtxDomain) continue;
    std::string_view text = rows.text(2);
    if (text.empty() && !rows.is_null(3)) text = draft.names.string(rows.integer(3));
    domains[{store::global_pid_of(rows.integer(4)), rows.integer(1)}] = std::string(text);
  }
  return domains;
}

struct OpenRange {
  LaneKey lane;
  size_t slice, row;  // indices into the lane's slices and into nvtx_rows
};

}  // namespace

void read_event_kinds(Draft& draft) {
  struct Source {
    const char* table;
    Kind kind;
  };
  constexpr Source kSources[] = {{"TAUT_COLLECTIVE", Kind::communication},
                                 {"TAUT_MICROBATCH", Kind::compute},
                                 {"TAUT_BATCH", Kind::loader},
                                 {"TAUT_LOADER_WORK", Kind::loader}};
  for (const Source& source : kSources) {
    for (auto rows = draft.reader.rows(source.table, {"eventId"}); rows.next();) {
      if (!rows.is_null(0)) draft.kind_by_event[rows.integer(0)] = source.kind;
    }
  }
  for (auto rows = draft.reader.rows("TAUT_LOADER_WORK", {"eventId", "phase"}); rows.next();) {
    if (rows.text(1) == "blocked") draft.kind_by_event[rows.integer(0)] = Kind::sync;
  }
}

void read_nvtx(Draft& draft) {
  if (!draft.reader.has("NVTX_EVENTS")) return;
  const auto domains = read_domains(draft);
  std::vector<OpenRange> open;
  int64_t last = std::numeric_limits<int64_t>::min();
  auto rows =
      draft.reader.rows("NVTX_EVENTS", {"start", "end", "eventType", "text", "textId", "globalTid", "domainId"});
  while (rows.next()) {
    const int64_t type = rows.integer(2);
    if (type == store::kNvtxDomain || type == store::kNvtxCategory || rows.is_null(0)) continue;
    const int64_t start = rows.integer(0), global_tid = rows.integer(5), rowid = rows.rowid();
    const bool is_open = rows.is_null(1);
    const int64_t end = is_open ? start : rows.integer(1);
    if (!Draft::sensible(start, end)) {
      draft.reject();
      continue;
    }
    draft.nvtx_rows.push_back({rowid, start, end, global_tid});
    last = std::max(last, end);
    if (type != store::kNvtxPushPop && type != store::kNvtxStartEnd) continue;

    RawSlice slice{.start = start, .end = end, .rowid = rowid};
    slice.name =
        rows.is_null(3) && !rows.is_null(4) ? draft.names.intern_id(rows.integer(4)) : draft.names.intern(rows.text(3));
    const auto described = draft.kind_by_event.find(rowid);
    if (described != draft.kind_by_event.end()) {
      slice.kind = described->second;
    } else {
      const auto domain = domains.find({store::global_pid_of(global_tid), rows.integer(6)});
      slice.kind = classify_range(domain == domains.end() ? std::string_view() : std::string_view(domain->second),
                                  draft.timeline.names[slice.name]);
    }
    LaneKey key{.type = LaneType::other_thread, .global_tid = global_tid};
    if (type == store::kNvtxStartEnd) {
      key.type = slice.kind == Kind::communication ? LaneType::collectives : LaneType::ranges;
      key.global_tid = store::global_pid_of(global_tid);
    }
    auto& lane = draft.slices[key];
    if (is_open) open.push_back({key, lane.size(), draft.nvtx_rows.size() - 1});
    lane.push_back(slice);
  }
  // Ranges that never ended belong to a process that died or was still running: they last to the end.
  for (const OpenRange& range : open) {
    draft.slices[range.lane][range.slice].end = last;
    draft.nvtx_rows[range.row].end = last;
  }
  if (!open.empty()) {
    draft.timeline.quality.warnings.push_back(std::to_string(open.size()) +
                                              " ranges never ended (their process died or the trace was cut); they are "
                                              "shown up to the last event");
  }
  std::sort(draft.nvtx_rows.begin(), draft.nvtx_rows.end(),
            [](const NvtxRow& a, const NvtxRow& b) { return a.rowid < b.rowid; });
}

}  // namespace taut::timeline
