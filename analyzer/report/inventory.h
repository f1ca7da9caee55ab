// `taut info`: what is in a trace file, without analysing it. Reads a few columns only, so that it stays quick on large
// files and works on a trace whose run still goes on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analyzer/report/report.h"
#include "tracer/store/reader.h"

namespace taut::report {

/// A rank, or in a foreign file a process with GPU work; there the mesh is unknown and `rank` counts processes.
struct RankInventory {
  int64_t rank = 0, pid = 0, node = 0, dp = 0, tp = 0, pp = 0, cp = 0, ep = 0, edp = 0, device = -1;
  int64_t steps = 0, first_step = 0, last_step = 0;  // steps traced; first and last are meaningless without steps
};

struct ClockInventory {
  int64_t node = 0, offset_ns = 0, error_ns = 0;
  std::string method;
};

struct Inventory {
  std::string path;
  bool is_taut = false, is_live = false;
  int64_t bytes = 0;      // size of the file, its WAL included
  double duration_s = 0;  // first start to last end
  std::vector<RankInventory> ranks;
  int64_t dp = 1, tp = 1, pp = 1, cp = 1, ep = 1, edp = 1;  // sizes of the mesh
  std::vector<std::pair<std::string, int64_t>> groups;      // name and size
  int64_t steps = 0;                                        // distinct steps
  std::optional<std::pair<int64_t, int64_t>> step_range;    // first and last
  std::vector<std::pair<std::string, int64_t>> tables;      // name and rows; no empty ones, no ENUM_*
  int64_t events = 0;                                       // rows of event tables
  int64_t dropped_events = 0;
  std::vector<ClockInventory> clocks;
  std::map<std::string, std::string> versions;  // who wrote the file: product and schema versions, host, start
  std::map<std::string, std::string> traced;    // what was recorded
  std::vector<std::string> devices;
  bool has_config = false;
};

/// Throws taut::Error for a damaged file.
Inventory inventory_of(const store::Reader& reader);

std::string inventory_text(const Inventory& inventory);
Json inventory_json(const Inventory& inventory);

}  // namespace taut::report
