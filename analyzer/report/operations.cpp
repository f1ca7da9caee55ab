#include "analyzer/report/operations.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>

#include "analyzer/report/escape.h"
#include "analyzer/report/units.h"

namespace taut::report {
namespace {

std::string_view key_of(const timeline::Timeline& timeline, const timeline::Lane& lane, size_t slice,
                        metrics::GroupBy by) {
  switch (by) {
    case metrics::GroupBy::kind:
      return timeline::kind_name(lane.slices.kind[slice]);
    case metrics::GroupBy::lane:
      return lane.title;
    case metrics::GroupBy::name:
      break;
  }
  return timeline.names[lane.slices.name[slice]];
}

/// The nearest-rank percentile (the smallest value that q of the values do not exceed): always a duration that
/// occurred.
int64_t percentile(std::vector<int64_t>& values, double q) {
  if (values.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(q * double(values.size())));
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(rank == 0 ? 0 : rank - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

double sort_value(const OperationRow& row, SortBy sort) {
  switch (sort) {
    case SortBy::self:
      return double(row.self_ns);
    case SortBy::count:
      return double(row.count);
    case SortBy::mean:
      return row.mean_ns;
    case SortBy::total:
      break;
  }
  return double(row.total_ns);
}

/// Durations of all slices of the rows shown, by key.
void add_percentiles(const timeline::Timeline& timeline, metrics::GroupBy by, std::vector<OperationRow>& rows) {
  std::unordered_map<std::string_view, size_t> index;
  for (size_t i = 0; i < rows.size(); ++i) index.emplace(rows[i].key, i);
  std::vector<std::vector<int64_t>> durations(rows.size());
  for (const auto& lane : timeline.lanes) {
    for (size_t i = 0; i < lane.slices.size(); ++i) {
      const auto row = index.find(key_of(timeline, lane, i, by));
      if (row != index.end()) durations[row->second].push_back(lane.slices.end[i] - lane.slices.start[i]);
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].p50_ns = percentile(durations[i], 0.50);
    rows[i].p95_ns = percentile(durations[i], 0.95);
  }
}

}  // namespace

Operations operations(const timeline::Timeline& timeline, metrics::GroupBy by, SortBy sort, int64_t limit) {
  Operations out;
  for (auto& total : metrics::operation_totals(timeline, by)) {
    OperationRow row;
    row.key = total.key;
    row.kind = timeline::kind_name(total.kind);
    row.count = total.count;
    row.total_ns = total.total_ns;
    row.self_ns = total.self_ns;
    row.mean_ns = total.mean_ns();
    out.self_ns += total.self_ns;
    out.rows.push_back(std::move(row));
  }
  out.rows_in_all = static_cast<int64_t>(out.rows.size());
  std::sort(out.rows.begin(), out.rows.end(), [sort](const OperationRow& a, const OperationRow& b) {
    const double value_a = sort_value(a, sort), value_b = sort_value(b, sort);
    return value_a != value_b ? value_a > value_b : a.key < b.key;
  });
  if (limit > 0 && out.rows_in_all > limit) out.rows.resize(static_cast<size_t>(limit));
  for (auto& row : out.rows) row.share = out.self_ns > 0 ? double(row.self_ns) / double(out.self_ns) : 0;
  add_percentiles(timeline, by, out.rows);
  return out;
}

std::string operations_text(const Operations& operations, const std::string& key_title) {
  const bool has_kind = key_title == "name";  // a lane has slices of many kinds
  Table table{{{key_title, Align::left}}, {}};
  if (has_kind) table.columns.push_back({"kind", Align::left});
  for (const char* const title : {"count", "total", "self", "self share", "mean", "p50", "p95"}) {
    table.columns.push_back({title, Align::right});
  }
  for (const auto& row : operations.rows) {
    auto& cells = table.rows.emplace_back();
    cells.push_back(row.key);
    if (has_kind) cells.push_back(row.kind);
    cells.push_back(format_count(row.count));
    cells.push_back(format_ns(double(row.total_ns)));
    cells.push_back(format_ns(double(row.self_ns)));
    cells.push_back(format_share(row.share));
    for (const double ns : {row.mean_ns, double(row.p50_ns), double(row.p95_ns)}) cells.push_back(format_ns(ns));
  }
  std::string out = table_text(table, {.indent = "", .max_cell_width = 60});
  const int64_t hidden = operations.rows_in_all - static_cast<int64_t>(operations.rows.size());
  if (hidden > 0) out += "… and " + format_count(hidden) + " more rows (--limit 0 shows all)\n";
  return out;
}

Json operations_json(const Operations& operations, const std::string& by) {
  Json rows = Json::array();
  for (const auto& row : operations.rows) {
    rows.push_back({{by, printable(row.key)},
                    {"kind", row.kind},
                    {"count", row.count},
                    {"total_ns", row.total_ns},
                    {"self_ns", row.self_ns},
                    {"mean_ns", finite(row.mean_ns)},
                    {"p50_ns", row.p50_ns},
                    {"p95_ns", row.p95_ns},
                    {"share", finite(row.share)}});
  }
  return {{"by", by}, {"rows_in_all", operations.rows_in_all}, {"rows", rows}};
}

std::string devices_text(const std::vector<metrics::DeviceTotal>& devices) {
  if (devices.empty()) return "No GPU work in this trace.\n";
  Table table;
  for (const char* const title :
       {"rank", "device", "total", "computation", "communication", "exposed communication", "exposed copies", "idle"}) {
    table.columns.push_back({title, Align::right});
  }
  for (const auto& d : devices) {
    table.rows.push_back({std::to_string(d.rank), std::to_string(d.device), format_ns(double(d.total_ns)),
                          format_ns(double(d.computation_ns)), format_ns(double(d.communication_ns)),
                          format_ns(double(d.exposed_communication_ns)), format_ns(double(d.exposed_copy_ns)),
                          format_ns(double(d.idle_ns))});
  }
  return table_text(table);
}

Json devices_json(const std::vector<metrics::DeviceTotal>& devices) {
  Json rows = Json::array();
  for (const auto& d : devices) {
    rows.push_back({{"rank", d.rank},
                    {"device", d.device},
                    {"total_ns", d.total_ns},
                    {"computation_ns", d.computation_ns},
                    {"communication_ns", d.communication_ns},
                    {"exposed_communication_ns", d.exposed_communication_ns},
                    {"exposed_copy_ns", d.exposed_copy_ns},
                    {"idle_ns", d.idle_ns}});
  }
  return {{"devices", rows}};
}

}  // namespace taut::report
