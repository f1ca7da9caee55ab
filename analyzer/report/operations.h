// `taut stats`: what took the time, by name, kind, lane or device, over the whole file.
#pragma once

#include <string>
#include <vector>

#include "analyzer/metrics/statistics.h"
#include "analyzer/report/report.h"
#include "analyzer/report/table.h"

namespace taut::report {

enum class SortBy { total, self, count, mean };

/// One row of the table that people know as `key_averages`. Times are ns; `share` is self time over the self time of
/// all rows, so shares add up to 1.
struct OperationRow {
  std::string key, kind;
  int64_t count = 0, total_ns = 0, self_ns = 0, p50_ns = 0, p95_ns = 0;
  double mean_ns = 0, share = 0;
};

struct Operations {
  std::vector<OperationRow> rows;  // sorted, cut to the limit
  int64_t rows_in_all = 0;
  int64_t self_ns = 0;  // of all rows, shown or not
};

/// `limit` <= 0 = all rows. Ties keep their order by key, so that the output is stable.
Operations operations(const timeline::Timeline& timeline, metrics::GroupBy by, SortBy sort, int64_t limit);

std::string operations_text(const Operations& operations, const std::string& key_title);
Json operations_json(const Operations& operations, const std::string& by);

std::string devices_text(const std::vector<metrics::DeviceTotal>& devices);
/// {"devices":[{"rank","device","total_ns","computation_ns","communication_ns","exposed_communication_ns",
/// "exposed_copy_ns","idle_ns"}]}
Json devices_json(const std::vector<metrics::DeviceTotal>& devices);

}  // namespace taut::report
