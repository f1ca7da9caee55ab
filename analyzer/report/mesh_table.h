// Where each rank sits in the mesh, as a table: a row a rank, or, where that would fill the screen, a row for all ranks
// that differ in the fastest coordinates only (rank order is Megatron's: tp, then cp, dp, pp).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "analyzer/report/inventory.h"
#include "analyzer/report/table.h"

namespace taut::report {

/// At most about `most_rows` rows: ranks of one tp group share a row, then those of one cp, then one stage.
Table mesh_table(const Inventory& inventory, size_t most_rows = 32);

/// "world (8), tp0 (2), tp1 (2)"; many groups are counted by kind: "64 tp groups (8)".
std::string group_list(const std::vector<std::pair<std::string, int64_t>>& groups, size_t most_names = 16);

/// "tp" of "tp12": the axis that names a group.
std::string axis_of_group(const std::string& name);

}  // namespace taut::report
