#include "tracer/store/open_check.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string_view>

#include "taut.h"
#include "tracer/store/schema.h"

namespace taut::store {
namespace {

constexpr const char* kWanted =
    "a Taut trace (taut train --trace FILE) or an Nsight Systems export "
    "(nsys export --type sqlite) is expected";

struct Finalize {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

Statement prepare(sqlite3* db, const char* sql, const std::string& path) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(db, sql, -1, &statement, nullptr);
  if (code != SQLITE_OK) fail_reading(db, code, path);
  return Statement(statement);
}

std::string_view text(sqlite3_stmt* statement, int column) {
  const auto* value = reinterpret_cast<const char*>(sqlite3_column_text(statement, column));
  return value ? std::string_view(value, static_cast<size_t>(sqlite3_column_bytes(statement, column)))
               : std::string_view{};
}

bool same_name(std::string_view a, std::string_view b) {
  return a.size() == b.size() && sqlite3_strnicmp(a.data(), b.data(), static_cast<int>(a.size())) == 0;
}

bool known(std::string_view name) {
  for (const Table& table : tables())
    if (same_name(name, table.name)) return true;
  return false;
}

[[noreturn]] void hostile(const std::string& path, const std::string& why) {
  throw Error("will not read " + path + ": " + why, "nsys and Taut write plain tables only; export the trace again");
}

uint32_t big_endian(const char* at, int bytes) {
  uint32_t value = 0;
  for (int i = 0; i < bytes; ++i) value = value << 8 | static_cast<unsigned char>(at[i]);
  return value;
}

/// Whether the file is shorter than its header says. SQLite itself forgives a last page that is not whole.
bool cut_short(const char* head, int64_t size, bool has_wal) {
  const uint32_t page = big_endian(head + 16, 2) == 1 ? 65536 : big_endian(head + 16, 2);
  const uint32_t pages = big_endian(head + 28, 4);
  const bool pages_known = big_endian(head + 24, 4) == big_endian(head + 92, 4);
  return !has_wal && pages_known && size < int64_t{page} * pages;
}

/// A guess from the first bytes, for the hint.
const char* hint_for(std::string_view head) {
  if (head.substr(0, 2) == "\x1f\x8b") return "this is a gzip file; a Taut trace or an nsys SQLite export is expected";
  if (!head.empty() && (head[0] == '{' || head[0] == '['))
    return "this looks like JSON; a Taut trace or an nsys SQLite export is expected";
  return kWanted;
}

}  // namespace

void check_file(const std::string& path) {
  struct stat info {};
  if (path.empty()) throw Error("no trace file is named", kWanted, 2);
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) throw Error("there is no file " + path, "check the name and the folder");
    throw Error("cannot read " + path + ": " + std::strerror(errno), "check its permissions");
  }
  if (S_ISDIR(info.st_mode)) throw Error(path + " is a folder", "name the trace file in it");
  if (!S_ISREG(info.st_mode)) throw Error(path + " is not a regular file", kWanted);
  if (info.st_size == 0) throw Error(path + " is empty", "the run that wrote it did not get to its first event");
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw Error("cannot read " + path + ": " + std::strerror(errno), "check its permissions");
  char head[100] = {};
  const ssize_t got = ::read(fd, head, sizeof head);
  ::close(fd);
  if (got < 0) throw Error("cannot read " + path + ": " + std::strerror(errno), "check the disk");
  if (got < 16 || std::memcmp(head, "SQLite format 3", 16) != 0)
    throw Error(path + " is not a trace", hint_for({head, static_cast<size_t>(got)}));
  struct stat wal {};
  const bool has_wal = ::stat((path + "-wal").c_str(), &wal) == 0 && wal.st_size > 0;
  if (got < static_cast<ssize_t>(sizeof head) || cut_short(head, info.st_size, has_wal))
    throw Error(path + " is damaged or cut short", "copy or record it again");
}

void harden(sqlite3* db) {
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, nullptr);
  sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 64 * 1024 * 1024);  // the largest value, row or SQL text
  sqlite3_limit(db, SQLITE_LIMIT_SQL_LENGTH, 1024 * 1024);
  sqlite3_limit(db, SQLITE_LIMIT_COLUMN, 500);
  sqlite3_limit(db, SQLITE_LIMIT_EXPR_DEPTH, 200);
  sqlite3_limit(db, SQLITE_LIMIT_COMPOUND_SELECT, 50);
  sqlite3_limit(db, SQLITE_LIMIT_VDBE_OP, 250'000);
  sqlite3_limit(db, SQLITE_LIMIT_FUNCTION_ARG, 32);
  sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
  sqlite3_limit(db, SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000);
  sqlite3_limit(db, SQLITE_LIMIT_WORKER_THREADS, 0);
  sqlite3_exec(db,
               "PRAGMA query_only=ON; PRAGMA cell_size_check=ON; PRAGMA mmap_size=0; PRAGMA temp_store=MEMORY;"
               "PRAGMA cache_size=-16384",
               nullptr, nullptr, nullptr);
}

void check_schema(sqlite3* db, const std::string& path) {
  bool strings = false, events = false;
  const Statement objects = prepare(db, "SELECT type, name, tbl_name, sql FROM sqlite_schema", path);
  int code;
  while ((code = sqlite3_step(objects.get())) == SQLITE_ROW) {
    const std::string_view type = text(objects.get(), 0), name = text(objects.get(), 1);
    const std::string_view of = text(objects.get(), 2), sql = text(objects.get(), 3);
    if (type == "trigger" && known(of)) hostile(path, "table " + std::string(of) + " has a trigger");
    if (!known(name)) continue;
    if (type != "table") hostile(path, std::string(name) + " is a " + std::string(type) + ", not a table");
    if (sqlite3_strnicmp(sql.data(), "CREATE TABLE", 12) != 0) hostile(path, std::string(name) + " is a virtual table");
    const Statement columns = prepare(db, "SELECT count(*) FROM pragma_table_xinfo(?) WHERE hidden<>0", path);
    sqlite3_bind_text(columns.get(), 1, name.data(), static_cast<int>(name.size()), SQLITE_TRANSIENT);
    const int got = sqlite3_step(columns.get());
    if (got != SQLITE_ROW) fail_reading(db, got, path);
    if (sqlite3_column_int(columns.get(), 0) > 0) hostile(path, "table " + std::string(name) + " has computed columns");
    if (same_name(name, "StringIds")) strings = true;
    if (same_name(name, "NVTX_EVENTS") || same_name(name, "CUPTI_ACTIVITY_KIND_KERNEL") || same_name(name, "TAUT_META"))
      events = true;
  }
  if (code != SQLITE_DONE) fail_reading(db, code, path);
  if (!strings || !events) throw Error(path + " is an SQLite database, but not a trace", kWanted);
}

void fail_reading(sqlite3* db, int code, const std::string& path) {
  switch (code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      throw Error(path + " is damaged or cut short",
                  "copy or record it again; `sqlite3 FILE .recover` may save a part");
    case SQLITE_CANTOPEN:
      throw Error(
          "cannot open " + path + " beside its write-ahead log",
          "the run that writes it did not end; make the folder writable, or copy FILE and FILE-wal to one that is");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      throw Error(path + " is locked by another program", "wait until that program has finished");
    case SQLITE_TOOBIG:
      throw Error(path + " holds a value larger than 64 MiB", "such a file was not written by Taut or nsys");
    case SQLITE_NOMEM:
      throw Error("not enough memory to read " + path, "close other programs, or trace fewer steps");
    case SQLITE_IOERR:
      throw Error("input/output error while reading " + path, "check the disk; the file may be cut short");
    default:
      throw Error("cannot read " + path + ": " + (db ? sqlite3_errmsg(db) : sqlite3_errstr(code)),
                  "the file may be damaged; copy or record it again");
  }
}

}  // namespace taut::store
