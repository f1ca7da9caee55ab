// What the trace says about itself: run, ranks, groups, devices, and how far its clock and counts can be trusted.
#include <algorithm>
#include <charconv>

#include "analyzer/timeline/loading.h"

namespace taut::timeline {

void read_meta(Draft& draft) {
  Timeline& timeline = draft.timeline;
  const store::Reader& reader = draft.reader;
  timeline.meta = reader.meta();
  if (timeline.meta.empty()) {
    for (auto rows = reader.rows("META_DATA_EXPORT", {"name", "value"}); rows.next();) {
      timeline.meta.emplace(rows.text(0), rows.text(1));
    }
  }

  for (auto rows = reader.rows("TAUT_RANK", {"rank", "globalPid", "node", "dp", "tp", "pp", "cp", "ep", "device"});
       rows.next();) {
    const int64_t number = rows.integer(0, -1);
    if (number < 0 || number >= (1 << 20)) {
      draft.reject();
      continue;
    }
    Rank& rank = draft.ranks[static_cast<int32_t>(number)];
    rank.rank = static_cast<int32_t>(number);
    rank.global_pid = rows.integer(1);
    rank.node = static_cast<int32_t>(rows.integer(2));
    rank.dp = static_cast<int32_t>(rows.integer(3));
    rank.tp = static_cast<int32_t>(rows.integer(4));
    rank.pp = static_cast<int32_t>(rows.integer(5));
    rank.cp = static_cast<int32_t>(rows.integer(6));
    rank.ep = static_cast<int32_t>(rows.integer(7));
    rank.device = static_cast<int32_t>(rows.integer(8, -1));
    draft.rank_by_pid[rank.global_pid] = rank.rank;
  }

  for (auto rows = reader.rows("TAUT_GROUP", {"groupId", "name", "size"}); rows.next();) {
    timeline.groups[rows.integer(0)] = {std::string(rows.text(1)), static_cast<int32_t>(rows.integer(2))};
  }
  for (auto rows = reader.rows("TAUT_CLOCK", {"errorNs"}); rows.next();) {
    timeline.quality.clock_error_ns = std::max(timeline.quality.clock_error_ns, rows.integer(0));
  }
  for (auto rows = reader.rows("TAUT_LOSS", {"dropped"}); rows.next();) {
    timeline.quality.dropped_events += std::max<int64_t>(0, rows.integer(0));
  }
  for (auto rows = reader.rows("TARGET_INFO_GPU", {"id", "name"}); rows.next();) {
    timeline.device_names[static_cast<int32_t>(rows.integer(0))] = std::string(rows.text(1));
  }
  for (auto rows = reader.rows("TARGET_INFO_SYSTEM_ENV", {"name", "value"}); rows.next();) {
    if (rows.text(0) != "CpuCores") continue;
    const std::string_view value = rows.text(1);
    int64_t cores = 0;
    std::from_chars(value.data(), value.data() + value.size(), cores);
    if (cores > 0 && timeline.cpu_cores == 0) timeline.cpu_cores = cores;
  }
}

}  // namespace taut::timeline
