#include "analyzer/report/inventory.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "analyzer/report/escape.h"
#include "analyzer/report/mesh_table.h"
#include "analyzer/report/table.h"
#include "analyzer/report/units.h"
#include "tracer/store/ids.h"

namespace taut::report {
namespace {

/// Tables whose rows are things that happened.
bool is_event_table(const std::string& name) {
  return name == "NVTX_EVENTS" || name.rfind("CUPTI_ACTIVITY_KIND_", 0) == 0;
}

void read_ranks(const store::Reader& reader, Inventory& out) {
  auto rows = reader.rows("TAUT_RANK", {"rank", "globalPid", "node", "dp", "tp", "pp", "cp", "ep", "device"});
  while (rows.next()) {
    RankInventory rank;
    rank.rank = rows.integer(0);
    rank.pid = store::pid_of(rows.integer(1));
    int64_t* const fields[] = {&rank.node, &rank.dp, &rank.tp, &rank.pp, &rank.cp, &rank.ep};
    // A damaged file may hold any number; no mesh is larger.
    for (int i = 0; i < 6; ++i) *fields[i] = std::clamp<int64_t>(rows.integer(i + 2), 0, 1 << 24);
    rank.device = rows.integer(8, -1);
    out.dp = std::max(out.dp, rank.dp + 1);
    out.tp = std::max(out.tp, rank.tp + 1);
    out.pp = std::max(out.pp, rank.pp + 1);
    out.cp = std::max(out.cp, rank.cp + 1);
    out.ep = std::max(out.ep, rank.ep + 1);
    out.ranks.push_back(rank);
  }
  // The table does not hold it: expert-data parallel ranks count the dp × cp ranks ep by ep.
  for (RankInventory& rank : out.ranks) rank.edp = (rank.dp * out.cp + rank.cp) / out.ep;
  for (const RankInventory& rank : out.ranks) out.edp = std::max(out.edp, rank.edp + 1);
  std::sort(out.ranks.begin(), out.ranks.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
}

/// A foreign file: one "rank" for each process (or, where processes are not named, device) that has kernels.
void read_gpu_processes(const store::Reader& reader, Inventory& out) {
  std::set<std::pair<int64_t, int64_t>> seen;
  auto rows = reader.rows("CUPTI_ACTIVITY_KIND_KERNEL", {"globalPid", "deviceId"});
  while (rows.next()) seen.insert({rows.integer(0, 0), rows.integer(1, 0)});
  for (const auto& [global_pid, device] : seen) {
    RankInventory rank;
    rank.rank = static_cast<int64_t>(out.ranks.size());
    rank.pid = store::pid_of(global_pid);
    rank.device = device;
    out.ranks.push_back(rank);
  }
}

void read_steps(const store::Reader& reader, Inventory& out) {
  std::set<int64_t> all;
  std::map<int64_t, std::set<int64_t>> by_rank;
  auto rows = reader.rows("TAUT_STEP", {"rank", "step"});
  while (rows.next()) {
    all.insert(rows.integer(1));
    by_rank[rows.integer(0)].insert(rows.integer(1));
  }
  out.steps = static_cast<int64_t>(all.size());
  if (!all.empty()) out.step_range = {*all.begin(), *all.rbegin()};
  for (auto& rank : out.ranks) {
    const auto& steps = by_rank[rank.rank];
    rank.steps = static_cast<int64_t>(steps.size());
    if (!steps.empty()) rank.first_step = *steps.begin(), rank.last_step = *steps.rbegin();
  }
}

void read_span(const store::Reader& reader, Inventory& out) {
  std::optional<int64_t> first, last;
  for (const auto& [name, count] : out.tables) {
    if (!is_event_table(name) && name != "TAUT_STEP") continue;
    auto rows = reader.rows(name, {"start", "end"});
    while (rows.next()) {
      if (rows.is_null(0)) continue;
      const int64_t start = rows.integer(0), end = rows.integer(1, start);
      first = first ? std::min(*first, start) : start;
      last = last ? std::max(*last, end) : end;
    }
  }
  if (first && *last > *first) out.duration_s = (double(*last) - double(*first)) / 1e9;
}

/// Name/value pairs that say who wrote the file; the rest of the metadata stays out.
void read_versions(const store::Reader& reader, Inventory& out) {
  for (const auto& [key, value] : reader.meta()) {
    if (key.rfind("traced.", 0) == 0) {
      out.traced[key.substr(7)] = value;
    } else if (key == "config") {
      out.has_config = true;
    } else {
      out.versions[key] = value;
    }
  }
  static const std::set<std::string> wanted{"EXPORT_PRODUCT_NAME", "EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION",
                                            "EXPORT_HOST", "EXPORT_TIME_UTC"};
  auto rows = reader.rows("META_DATA_EXPORT", {"name", "value"});
  while (rows.next()) {
    const std::string name(rows.text(0));
    if (wanted.count(name)) out.versions[name] = std::string(rows.text(1));
  }
}

void read_what_was_traced(Inventory& out) {
  static const std::pair<const char*, const char*> names[] = {{"NVTX_EVENTS", "nvtx"},
                                                              {"CUPTI_ACTIVITY_KIND_KERNEL", "kernels"},
                                                              {"CUPTI_ACTIVITY_KIND_RUNTIME", "cuda_api"},
                                                              {"CUPTI_ACTIVITY_KIND_MEMCPY", "copies"},
                                                              {"TAUT_COLLECTIVE", "collectives"},
                                                              {"TAUT_MEMORY", "memory"},
                                                              {"TAUT_COUNTER", "counters"}};
  if (!out.traced.empty()) return;
  for (const auto& [table, what] : names) {
    const bool has_rows =
        std::any_of(out.tables.begin(), out.tables.end(), [&](const auto& t) { return t.first == table; });
    out.traced[what] = has_rows ? "true" : "false";
  }
}

Json map_json(const std::map<std::string, std::string>& map) {
  Json out = Json::object();
  for (const auto& [key, value] : map) out[printable(key)] = printable(value);
  return out;
}

}  // namespace

Inventory inventory_of(const store::Reader& reader) {
  Inventory out;
  out.path = reader.path();
  out.is_taut = reader.is_taut();
  out.is_live = reader.is_live();
  for (const char* const part : {"", "-wal"}) {  // while the run goes on most of it is in the WAL
    std::error_code absent;
    const auto bytes = std::filesystem::file_size(out.path + part, absent);
    if (!absent) out.bytes += static_cast<int64_t>(bytes);
  }
  for (const auto& name : reader.table_names()) {
    if (name.rfind("ENUM_", 0) == 0 || name.rfind("sqlite_", 0) == 0) continue;
    const int64_t count = reader.count(name);
    if (count > 0) out.tables.push_back({name, count});
    if (is_event_table(name)) out.events += count;
  }
  std::sort(out.tables.begin(), out.tables.end());
  read_ranks(reader, out);
  if (out.ranks.empty()) read_gpu_processes(reader, out);
  read_steps(reader, out);
  read_span(reader, out);
  read_versions(reader, out);
  read_what_was_traced(out);
  auto groups = reader.rows("TAUT_GROUP", {"name", "size"});
  while (groups.next()) out.groups.push_back({std::string(groups.text(0)), groups.integer(1)});
  std::sort(out.groups.begin(), out.groups.end());
  out.groups.erase(std::unique(out.groups.begin(), out.groups.end()), out.groups.end());
  auto losses = reader.rows("TAUT_LOSS", {"dropped"});
  while (losses.next()) out.dropped_events += losses.integer(0);
  auto clocks = reader.rows("TAUT_CLOCK", {"node", "offsetNs", "errorNs", "method"});
  while (clocks.next()) {
    out.clocks.push_back({clocks.integer(0), clocks.integer(1), clocks.integer(2), std::string(clocks.text(3))});
  }
  auto devices = reader.rows("TARGET_INFO_GPU", {"name"});
  while (devices.next()) out.devices.push_back(std::string(devices.text(0)));
  return out;
}

std::string inventory_text(const Inventory& c) {
  std::string out = printable(c.path) + ": " + (c.is_taut ? "Taut trace" : "Nsight Systems export") + ", " +
                    format_bytes(double(c.bytes)) + (c.is_live ? ", still being written" : "") + "\n\n";
  const auto line = [&](const std::string& name, const std::string& value) {
    out += "  " + name + std::string(name.size() < 24 ? 24 - name.size() : 1, ' ') + printable(value) + "\n";
  };
  line("duration", format_ms(c.duration_s * 1e3));
  line("events", format_count(c.events));
  line("events lost", format_count(c.dropped_events));
  if (c.step_range) {
    line("steps", format_count(c.steps) + " (" + std::to_string(c.step_range->first) + " to " +
                      std::to_string(c.step_range->second) + ")");
  } else {
    line("steps", "not marked");
  }
  if (c.is_taut) {
    line("mesh", "dp " + std::to_string(c.dp) + " × tp " + std::to_string(c.tp) + " × pp " + std::to_string(c.pp) +
                     (c.cp > 1 ? " × cp " + std::to_string(c.cp) : "") +
                     (c.ep > 1 ? " × ep " + std::to_string(c.ep) + " (edp " + std::to_string(c.edp) + ")" : ""));
  }
  for (const auto& clock : c.clocks) {
    line("clock", "node " + std::to_string(clock.node) + ": offset " + format_ns(double(clock.offset_ns)) + ", error " +
                      format_ns(double(clock.error_ns)) + ", " + clock.method);
  }
  for (const auto& device : c.devices) line("device", device);
  if (!c.groups.empty()) {
    line("groups", group_list(c.groups));
  }
  std::string traced;
  for (const auto& [what, value] : c.traced) traced += (traced.empty() ? "" : ", ") + what + "=" + value;
  if (!traced.empty()) line("traced", traced);
  if (c.has_config) line("config", "stored in the trace");
  for (const auto& [key, value] : c.versions) line(key, value);

  if (!c.ranks.empty()) {
    out += "\n" + table_text(mesh_table(c), {.indent = "  "});
  }
  Table tables{{{"table", Align::left}, {"rows", Align::right}}, {}};
  for (const auto& [name, count] : c.tables) tables.rows.push_back({name, format_count(count)});
  return out + "\n" + table_text(tables, {.indent = "  "});
}

Json inventory_json(const Inventory& c) {
  Json ranks = Json::array(), groups = Json::array(), tables = Json::array(), clocks = Json::array(),
       devices = Json::array();
  int64_t clock_error = 0;
  for (const auto& r : c.ranks) {
    Json mesh = nullptr;
    if (c.is_taut) mesh = {{"dp", r.dp}, {"tp", r.tp}, {"pp", r.pp}, {"cp", r.cp}, {"ep", r.ep}, {"edp", r.edp}};
    ranks.push_back(
        {{"rank", r.rank}, {"pid", r.pid}, {"node", r.node}, {"mesh", mesh}, {"device", r.device}, {"steps", r.steps}});
  }
  for (const auto& [name, size] : c.groups) groups.push_back({{"name", printable(name)}, {"size", size}});
  for (const auto& [name, rows] : c.tables) tables.push_back({{"name", printable(name)}, {"rows", rows}});
  for (const auto& k : c.clocks) {
    clock_error = std::max(clock_error, k.error_ns);
    clocks.push_back(
        {{"node", k.node}, {"offset_ns", k.offset_ns}, {"error_ns", k.error_ns}, {"method", printable(k.method)}});
  }
  for (const auto& device : c.devices) devices.push_back(printable(device));
  Json mesh = nullptr;
  if (c.is_taut) mesh = {{"dp", c.dp}, {"tp", c.tp}, {"pp", c.pp}, {"cp", c.cp}, {"ep", c.ep}, {"edp", c.edp}};
  Json steps = {{"count", c.steps}, {"first", nullptr}, {"last", nullptr}};
  if (c.step_range) steps["first"] = c.step_range->first, steps["last"] = c.step_range->second;
  return {{"path", printable(c.path)},
          {"format", c.is_taut ? "taut" : "nsys"},
          {"live", c.is_live},
          {"bytes", c.bytes},
          {"duration_s", finite(c.duration_s)},
          {"events", c.events},
          {"dropped_events", c.dropped_events},
          {"clock_error_ns", clock_error},
          {"mesh", mesh},
          {"steps", steps},
          {"ranks", ranks},
          {"groups", groups},
          {"tables", tables},
          {"clocks", clocks},
          {"devices", devices},
          {"traced", map_json(c.traced)},
          {"has_config", c.has_config},
          {"versions", map_json(c.versions)}};
}

}  // namespace taut::report
