#include "tracer/store/query.h"

#include <sqlite3.h>

#include <memory>

#include "taut.h"
#include "tracer/store/open_check.h"

namespace taut::store {
namespace {

constexpr const char* kHint = "only reading is possible: SELECT, WITH, VALUES or EXPLAIN";

/// What a statement may do: read tables, call functions that only compute, recurse, look at a table's columns.
int authorize(void*, int action, const char* first, const char* second, const char*, const char*) {
  switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_RECURSIVE:
      return SQLITE_OK;
    case SQLITE_FUNCTION:
      return second &&
                     (sqlite3_stricmp(second, "load_extension") == 0 || sqlite3_stricmp(second, "fts3_tokenizer") == 0)
                 ? SQLITE_DENY
                 : SQLITE_OK;
    case SQLITE_PRAGMA: {
      for (const char* harmless : {"table_info", "table_xinfo", "table_list"})
        if (first && sqlite3_stricmp(first, harmless) == 0) return SQLITE_OK;
      return SQLITE_DENY;
    }
    default:
      return SQLITE_DENY;
  }
}

int out_of_time(void* deadline) {
  return std::chrono::steady_clock::now() > *static_cast<const std::chrono::steady_clock::time_point*>(deadline);
}

/// Authorizer and deadline for as long as the statement lives.
class Guard {
 public:
  Guard(sqlite3* db, std::chrono::steady_clock::time_point& deadline) : db_(db) {
    sqlite3_set_authorizer(db, authorize, nullptr);
    sqlite3_progress_handler(db, 10'000, out_of_time, &deadline);
  }
  ~Guard() {
    sqlite3_set_authorizer(db_, nullptr, nullptr);
    sqlite3_progress_handler(db_, 0, nullptr, nullptr);
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  sqlite3* db_;
};

struct Finalize {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};

Cell cell(sqlite3_stmt* statement, int column) {
  Cell cell;
  const int type = sqlite3_column_type(statement, column);
  switch (type) {
    case SQLITE_INTEGER:
      cell.type = Cell::Type::integer;
      cell.integer = sqlite3_column_int64(statement, column);
      break;
    case SQLITE_FLOAT:
      cell.type = Cell::Type::real;
      cell.real = sqlite3_column_double(statement, column);
      break;
    case SQLITE_TEXT:
    case SQLITE_BLOB: {
      cell.type = type == SQLITE_TEXT ? Cell::Type::text : Cell::Type::blob;
      const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement, column));
      if (bytes) cell.text.assign(bytes, static_cast<size_t>(sqlite3_column_bytes(statement, column)));
      break;
    }
    default:
      break;
  }
  return cell;
}

}  // namespace

QueryResult run_query(sqlite3* db, const std::string& path, std::string_view sql, const QueryLimits& limits) {
  auto deadline = std::chrono::steady_clock::now() + limits.max_time;
  const Guard guard(db, deadline);
  sqlite3_stmt* raw = nullptr;
  const char* rest = nullptr;
  if (sql.size() > 1024 * 1024) throw Error("the SQL text is longer than 1 MiB", "make it shorter", 2);
  const int prepared = sqlite3_prepare_v2(db, sql.data(), static_cast<int>(sql.size()), &raw, &rest);
  const std::unique_ptr<sqlite3_stmt, Finalize> statement(raw);
  if (prepared == SQLITE_AUTH) throw Error("this SQL would do more than read: " + std::string(sql), kHint, 2);
  if (prepared == SQLITE_ERROR)
    throw Error("SQL error: " + std::string(sqlite3_errmsg(db)),
                "`taut query FILE \"SELECT name FROM sqlite_schema\"` lists the tables", 2);
  if (prepared != SQLITE_OK) fail_reading(db, prepared, path);
  if (!raw) throw Error("there is no SQL statement", kHint, 2);
  if (!sqlite3_stmt_readonly(raw)) throw Error("this SQL would change the file", kHint, 2);
  const std::string_view after(rest, static_cast<size_t>(sql.data() + sql.size() - rest));
  if (after.find_first_not_of(" \t\r\n;") != std::string_view::npos)
    throw Error("there is more than one SQL statement", "run them one by one", 2);

  QueryResult result;
  const int columns = sqlite3_column_count(raw);
  for (int i = 0; i < columns; ++i) result.columns.emplace_back(sqlite3_column_name(raw, i));
  int code;
  while ((code = sqlite3_step(raw)) == SQLITE_ROW) {
    if (static_cast<int64_t>(result.rows.size()) >= limits.max_rows) {
      result.cut = true;
      return result;
    }
    std::vector<Cell>& row = result.rows.emplace_back();
    row.reserve(static_cast<size_t>(columns));
    for (int i = 0; i < columns; ++i) row.push_back(cell(raw, i));
  }
  if (code == SQLITE_INTERRUPT)
    throw Error("the query took longer than " + std::to_string(limits.max_time.count() / 1000) + " s",
                "add a WHERE or a LIMIT");
  if (code == SQLITE_ERROR) throw Error("SQL error: " + std::string(sqlite3_errmsg(db)), "check the statement", 2);
  if (code != SQLITE_DONE) fail_reading(db, code, path);
  return result;
}

}  // namespace taut::store
