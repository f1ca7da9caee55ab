#include "analyzer/report/mesh_table.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "analyzer/report/units.h"

namespace taut::report {
namespace {

/// Smallest and largest of a coordinate over the ranks of a row.
struct Range {
  int64_t low = 0, high = -1;

  void add(int64_t value) {
    low = high < low ? value : std::min(low, value);
    high = std::max(high, value);
  }
  std::string text() const {
    return low == high ? std::to_string(low) : std::to_string(low) + " to " + std::to_string(high);
  }
};

struct Row {
  int64_t ranks = 0;
  Range rank, pid, node, device, dp, tp, pp, cp, ep, edp, steps, first_step, last_step;
};

/// What the ranks of a row have in common when the `merged` fastest coordinates may differ.
std::tuple<int64_t, int64_t, int64_t, int64_t> key_of(const RankInventory& r, int merged) {
  return {r.pp, merged < 3 ? r.dp : 0, merged < 2 ? r.cp : 0, merged < 1 ? r.rank : 0};
}

std::vector<Row> rows_of(const Inventory& inventory, int merged) {
  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t>, Row> rows;
  for (const RankInventory& r : inventory.ranks) {
    Row& row = rows[key_of(r, merged)];
    ++row.ranks;
    row.rank.add(r.rank);
    row.pid.add(r.pid);
    row.node.add(r.node);
    row.device.add(r.device);
    row.dp.add(r.dp);
    row.tp.add(r.tp);
    row.pp.add(r.pp);
    row.cp.add(r.cp);
    row.ep.add(r.ep);
    row.edp.add(r.edp);
    row.steps.add(r.steps);
    if (r.steps > 0) row.first_step.add(r.first_step), row.last_step.add(r.last_step);
  }
  std::vector<Row> sorted;
  for (auto& [key, row] : rows) sorted.push_back(row);
  std::sort(sorted.begin(), sorted.end(), [](const Row& a, const Row& b) { return a.rank.low < b.rank.low; });
  return sorted;
}

std::string rank_text(const Row& row) {
  const int64_t places = row.rank.high - row.rank.low + 1;
  return row.rank.text() + (row.ranks < places ? " (" + std::to_string(row.ranks) + " of them)" : "");
}

}  // namespace

Table mesh_table(const Inventory& inventory, size_t most_rows) {
  std::vector<Row> rows = rows_of(inventory, 0);
  int merged = 0;
  while (inventory.is_taut && rows.size() > most_rows && merged < 3) rows = rows_of(inventory, ++merged);
  Table table;
  for (const char* const title : {"rank", "pid", "node", "device", "pp", "dp", "cp", "tp", "ep", "edp", "steps"}) {
    if (merged == 0 || std::string(title) != "pid") table.columns.push_back({title, Align::right});
  }
  for (const Row& row : rows) {
    std::vector<std::string> cells{rank_text(row)};
    if (merged == 0) cells.push_back(row.pid.text());
    cells.push_back(row.node.text());
    cells.push_back(row.device.high < 0 ? "cpu" : row.device.text());
    for (const Range& at : {row.pp, row.dp, row.cp, row.tp, row.ep, row.edp}) {
      cells.push_back(inventory.is_taut ? at.text() : "-");
    }
    cells.push_back(row.steps.high == 0 ? "0"
                                        : row.steps.text() + " (" + std::to_string(row.first_step.low) + " to " +
                                              std::to_string(row.last_step.high) + ")");
    table.rows.push_back(std::move(cells));
  }
  return table;
}

std::string axis_of_group(const std::string& name) {
  return name.substr(0, name.find_last_not_of("0123456789") + 1);
}

std::string group_list(const std::vector<std::pair<std::string, int64_t>>& groups, size_t most_names) {
  std::string text;
  const auto add = [&](const std::string& piece) { text += (text.empty() ? "" : ", ") + piece; };
  if (groups.size() <= most_names) {
    for (const auto& [name, size] : groups) add(name + " (" + std::to_string(size) + ")");
    return text;
  }
  std::map<std::pair<std::string, int64_t>, int64_t> kinds;
  for (const auto& [name, size] : groups) ++kinds[{axis_of_group(name), size}];
  for (const auto& [kind, count] : kinds) {
    const auto& [axis, size] = kind;
    add((count == 1 ? axis : format_count(count) + " " + axis + " groups") + " (" + std::to_string(size) + ")");
  }
  return text;
}

}  // namespace taut::report
