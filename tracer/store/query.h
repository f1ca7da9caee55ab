// Read-only SQL from a person, over an untrusted file: `taut query`.
#pragma once

#include <string>
#include <string_view>

#include "tracer/store/reader.h"

struct sqlite3;

namespace taut::store {

/// Runs one SELECT, WITH, VALUES or EXPLAIN statement; see Reader::query.
QueryResult run_query(sqlite3* db, const std::string& path, std::string_view sql, const QueryLimits& limits);

}  // namespace taut::store
