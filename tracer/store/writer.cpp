#include "tracer/store/writer.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <unordered_map>
#include <utility>
#include <vector>

#include "taut.h"

namespace taut::store {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBatch = 32;         // NVTX rows a statement: a third cheaper than one by one
constexpr int kBusyTimeoutMs = 5000;  // a reader may hold the file for as long as it loads it

/// Removes an older trace, or throws if something else is in the way.
void make_way(const std::string& path) {
  if (path.empty()) throw Error("the trace file has no name", "give a file name, for example run.db", 2);
  const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : fs::path(".");
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    throw Error("cannot write " + path + ": there is no folder " + folder.string(), "create the folder first");
  if (::stat(path.c_str(), &info) != 0) return;
  if (S_ISDIR(info.st_mode)) throw Error("cannot write " + path + ": it is a folder", "give a file name in it");
  if (!S_ISREG(info.st_mode)) throw Error("cannot write " + path + ": it is not a regular file", "give another name");
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw Error("cannot write " + path + ": " + std::strerror(errno), "check its permissions");
  char head[16] = {};
  const ssize_t got = ::read(fd, head, sizeof head);
  ::close(fd);
  if (got != 0 && (got != sizeof head || std::memcmp(head, "SQLite format 3", 16) != 0))
    throw Error("will not overwrite " + path + ": it is not a trace", "remove it, or give another name");
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) ::unlink((path + suffix).c_str());
}

std::string free_space(const std::string& path) {
  const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : fs::path(".");
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return "unknown space";
  return std::to_string(uint64_t{info.f_bavail} * info.f_frsize / (1024 * 1024)) + " MiB";
}

/// The columns that most NVTX rows have, waiting for their statement.
struct PlainNvtx {
  int64_t start, end, global_tid, text_id, domain_id;
  int event_type;
  bool has_end;
};
constexpr int kPlainColumns = 6;

std::string plain_sql(size_t rows) {
  std::string sql = "INSERT INTO NVTX_EVENTS(start,end,eventType,globalTid,textId,domainId) VALUES(?,?,?,?,?,?)";
  for (size_t i = 1; i < rows; ++i) sql += ",(?,?,?,?,?,?)";
  return sql;
}

}  // namespace

struct Writer::Impl {
  std::string path;
  sqlite3* db = nullptr;
  std::array<sqlite3_stmt*, kTableCount> inserts{};
  std::array<int, kTableCount> widths{};
  sqlite3_stmt *plain_one = nullptr, *plain_batch = nullptr;
  std::vector<PlainNvtx> pending;  // rows whose rowids are given out, in order
  int64_t nvtx_rowid = 0;          // the last one given out
  sqlite3_stmt* set_wait = nullptr;
  std::unordered_map<std::string, int64_t> strings;
  bool in_transaction = false;

  [[noreturn]] void fail(int code) const {
    const std::string what = "cannot write " + path + ": ";
    switch (code & 0xff) {
      case SQLITE_FULL:
        throw Error(what + "the disk is full (" + free_space(path) + " left, the trace had " +
                        std::to_string(bytes() / (1024 * 1024)) + " MiB)",
                    "free some space, write the trace elsewhere, or trace fewer steps (trace.steps)");
      case SQLITE_READONLY:
      case SQLITE_PERM:
      case SQLITE_CANTOPEN:
        throw Error(what + "no permission to create or change it", "check the folder's and the file's permissions");
      case SQLITE_IOERR:
        throw Error(what + "input/output error (" + free_space(path) + " left)",
                    "check the disk, or write the trace to another one");
      default:
        throw Error(what + (db ? sqlite3_errmsg(db) : sqlite3_errstr(code)), "write the trace to another file");
    }
  }
  void check(int code) const {
    if (code != SQLITE_OK && code != SQLITE_ROW && code != SQLITE_DONE) fail(code);
  }
  void run(const char* sql) const { check(sqlite3_exec(db, sql, nullptr, nullptr, nullptr)); }

  sqlite3_stmt* prepare(const std::string& sql) const {
    sqlite3_stmt* statement = nullptr;
    check(sqlite3_prepare_v3(db, sql.c_str(), -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr));
    return statement;
  }

  sqlite3_stmt* insert_statement(TableId id) {
    sqlite3_stmt*& statement = inserts[static_cast<size_t>(id)];
    if (statement) return statement;
    const Table& t = table(id);
    run(("CREATE TABLE IF NOT EXISTS " + std::string(t.name) + "(" + t.columns + ")").c_str());
    const size_t width = column_names(t).size();
    std::string sql = "INSERT INTO " + std::string(t.name) + " VALUES(?";
    for (size_t i = 1; i < width; ++i) sql += ",?";
    statement = prepare(sql + ")");
    widths[static_cast<size_t>(id)] = static_cast<int>(width);
    return statement;
  }

  void bind(sqlite3_stmt* statement, int column, const Value& value) const {
    switch (value.type) {
      case Value::Type::null:
        check(sqlite3_bind_null(statement, column));
        break;
      case Value::Type::integer:
        check(sqlite3_bind_int64(statement, column, value.integer));
        break;
      case Value::Type::real:
        check(sqlite3_bind_double(statement, column, value.real));
        break;
      case Value::Type::text:
        check(sqlite3_bind_text64(statement, column, value.bytes.data() ? value.bytes.data() : "", value.bytes.size(),
                                  SQLITE_STATIC, SQLITE_UTF8));
        break;
      case Value::Type::blob:
        check(sqlite3_bind_blob64(statement, column, value.bytes.data() ? value.bytes.data() : "", value.bytes.size(),
                                  SQLITE_STATIC));
        break;
    }
  }

  int64_t step(sqlite3_stmt* statement) const {
    const int code = sqlite3_step(statement);
    sqlite3_reset(statement);
    check(code);
    return sqlite3_last_insert_rowid(db);
  }

  int64_t bytes() const {
    int64_t total = 0;
    struct stat info {};
    for (const char* suffix : {"", "-wal"})
      if (::stat((path + suffix).c_str(), &info) == 0) total += info.st_size;
    return total;
  }

  void bind_plain(sqlite3_stmt* statement, int first, const PlainNvtx& row) const {
    sqlite3_bind_int64(statement, first, row.start);
    if (row.has_end)
      sqlite3_bind_int64(statement, first + 1, row.end);
    else
      sqlite3_bind_null(statement, first + 1);
    sqlite3_bind_int(statement, first + 2, row.event_type);
    sqlite3_bind_int64(statement, first + 3, row.global_tid);
    if (row.text_id >= 0)
      sqlite3_bind_int64(statement, first + 4, row.text_id);
    else
      sqlite3_bind_null(statement, first + 4);
    sqlite3_bind_int64(statement, first + 5, row.domain_id);
  }

  void flush_pending() {
    if (pending.empty()) return;
    int64_t last = 0;
    if (pending.size() == kBatch) {
      int column = 1;
      for (const PlainNvtx& row : pending) {
        bind_plain(plain_batch, column, row);
        column += kPlainColumns;
      }
      last = step(plain_batch);
    } else {
      for (const PlainNvtx& row : pending) {
        bind_plain(plain_one, 1, row);
        last = step(plain_one);
      }
    }
    pending.clear();
    if (last != nvtx_rowid) throw Error("cannot write " + path + ": its rows are not in order", "trace to a new file");
  }

  void finalize() noexcept {
    for (sqlite3_stmt*& statement : inserts) sqlite3_finalize(std::exchange(statement, nullptr));
    sqlite3_finalize(std::exchange(plain_one, nullptr));
    sqlite3_finalize(std::exchange(plain_batch, nullptr));
    sqlite3_finalize(std::exchange(set_wait, nullptr));
  }

  void close() noexcept {
    finalize();
    sqlite3_close(std::exchange(db, nullptr));
  }
};

Writer::Writer(std::string path) : impl_(std::make_unique<Impl>()) {
  impl_->path = std::move(path);
  make_way(impl_->path);
  // SQLite reads some names as options ("file:…", ":memory:"); a path with a slash is always a file.
  std::string plain = impl_->path;
  if (plain.find('/') == std::string::npos) plain.insert(0, "./");
  const int code = sqlite3_open_v2(plain.c_str(), &impl_->db,
                                   SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  try {
    impl_->check(code);
    sqlite3_busy_timeout(impl_->db, kBusyTimeoutMs);
    // A crash of the machine may lose the trace (synchronous off); a crash of this process loses nothing committed.
    impl_->run(
        "PRAGMA page_size=8192; PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF; PRAGMA wal_autocheckpoint=4000;"
        "PRAGMA cache_size=-2048; PRAGMA temp_store=MEMORY; PRAGMA application_id=0x54415554");
    begin();
    std::string sql;
    for (const TableId id : {TableId::StringIds, TableId::CUPTI_ACTIVITY_KIND_KERNEL, TableId::META_DATA_EXPORT,
                             TableId::META_DATA_CAPTURE, TableId::TARGET_INFO_SYSTEM_ENV, TableId::TAUT_META})
      create(id);
    for (const EnumRow& row : enum_rows()) {
      const std::string name = row.table;
      sql += "CREATE TABLE IF NOT EXISTS " + name + "(id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);";
      sql += "INSERT INTO " + name + " VALUES(" + std::to_string(row.id) + ",'" + row.name + "','" + row.label + "');";
    }
    impl_->run(sql.c_str());
    set_meta("schema_version", std::to_string(kTautSchemaVersion));
    set_meta("tool_version", kVersion);
    const std::string version = kNsysSchemaVersion;
    const size_t dot = version.find('.'), dot2 = version.find('.', dot + 1);
    const std::pair<const char*, std::string> about[] = {
        {"EXPORT_PRODUCT_NAME", "Taut"},
        {"EXPORT_PRODUCT_VERSION", kVersion},
        {"EXPORT_SCHEMA_VERSION", version},
        {"EXPORT_SCHEMA_VERSION_MAJOR", version.substr(0, dot)},
        {"EXPORT_SCHEMA_VERSION_MINOR", version.substr(dot + 1, dot2 - dot - 1)},
        {"EXPORT_SCHEMA_VERSION_MICRO", version.substr(dot2 + 1)},
        {"EXPORT_PARAM_EXPORT_TYPE", "SQLite"},
        {"EXPORT_PARAM_LAZY", "true"},
    };
    for (const auto& [name, value] : about) insert(TableId::META_DATA_EXPORT, {name, value});
    commit();
  } catch (...) {
    discard();
    throw;
  }
}

Writer::~Writer() {
  impl_->close();
}

const std::string& Writer::path() const {
  return impl_->path;
}

int64_t Writer::string_id(std::string_view text) {
  // nsys' own files start at 0, too.
  const auto [at, added] = impl_->strings.try_emplace(std::string(text), static_cast<int64_t>(impl_->strings.size()));
  if (added) insert(TableId::StringIds, {at->second, text});
  return at->second;
}

void Writer::begin() {
  if (impl_->in_transaction) return;
  impl_->run("BEGIN IMMEDIATE");
  impl_->in_transaction = true;
}

void Writer::commit() {
  impl_->flush_pending();
  if (!impl_->in_transaction) return;
  impl_->run("COMMIT");
  impl_->in_transaction = false;
}

void Writer::create(TableId table) {
  impl_->insert_statement(table);
}

int64_t Writer::insert(TableId table, std::initializer_list<Value> values) {
  return insert(table, std::span<const Value>(values.begin(), values.size()));
}

int64_t Writer::insert(TableId table, std::span<const Value> values) {
  if (table == TableId::NVTX_EVENTS) impl_->flush_pending();
  sqlite3_stmt* statement = impl_->insert_statement(table);
  const int width = impl_->widths[static_cast<size_t>(table)];
  for (int column = 0; column < width; ++column) {
    const auto i = static_cast<size_t>(column);
    impl_->bind(statement, column + 1, i < values.size() ? values[i] : Value());
  }
  const int64_t rowid = impl_->step(statement);
  if (table == TableId::NVTX_EVENTS) impl_->nvtx_rowid = rowid;
  return rowid;
}

int64_t Writer::insert_nvtx(const NvtxEvent& e) {
  const bool plain = !e.range_id && e.category == 0 && !e.color && !e.end_global_tid && e.text.empty() &&
                     e.binary.empty() && e.payload_type == NvtxEvent::Payload::none;
  if (!impl_->plain_one) {
    create(TableId::NVTX_EVENTS);
    impl_->plain_one = impl_->prepare(plain_sql(1));
    impl_->plain_batch = impl_->prepare(plain_sql(kBatch));
    impl_->pending.reserve(kBatch);
  }
  if (plain) {
    impl_->pending.push_back(
        {e.start, e.end.value_or(0), e.global_tid, e.text_id, e.domain_id, e.event_type, e.end.has_value()});
    ++impl_->nvtx_rowid;
    if (impl_->pending.size() == kBatch) impl_->flush_pending();
    return impl_->nvtx_rowid;
  }
  const Value end(e.end), text_id = e.text_id < 0 ? Value() : Value(e.text_id);
  Value scalar[6];  // uint64Value … floatValue
  if (e.payload_type != NvtxEvent::Payload::none) scalar[static_cast<size_t>(e.payload_type) - 1] = e.payload;
  const Value category = e.category ? Value(e.category) : Value(), text = e.text.empty() ? Value() : Value(e.text);
  const Value binary = e.binary.empty() ? Value() : Value::blob(e.binary);
  return insert(TableId::NVTX_EVENTS,
                {e.start,          end,     e.event_type, e.range_id, category,  e.color,   text,      e.global_tid,
                 e.end_global_tid, text_id, e.domain_id,  scalar[0],  scalar[1], scalar[2], scalar[3], scalar[4],
                 scalar[5],        nullptr, nullptr,      binary});
}

void Writer::set_collective_wait(int64_t rowid, int64_t wait_start, std::optional<int64_t> wait_end) {
  if (!impl_->set_wait)
    impl_->set_wait = impl_->prepare("UPDATE TAUT_COLLECTIVE SET waitStart=?,waitEnd=? WHERE rowid=?");
  sqlite3_bind_int64(impl_->set_wait, 1, wait_start);
  impl_->bind(impl_->set_wait, 2, Value(wait_end));
  sqlite3_bind_int64(impl_->set_wait, 3, rowid);
  impl_->step(impl_->set_wait);
}

void Writer::set_meta(std::string_view key, std::string_view value) {
  execute("DELETE FROM TAUT_META WHERE key=?", {key});
  insert(TableId::TAUT_META, {key, value});
}

void Writer::execute(const char* sql, std::initializer_list<Value> values) {
  impl_->flush_pending();
  sqlite3_stmt* statement = impl_->prepare(sql);
  int column = 0;
  int code = SQLITE_OK;
  try {
    for (const Value& value : values) impl_->bind(statement, ++column, value);
    code = sqlite3_step(statement);
  } catch (...) {
    sqlite3_finalize(statement);
    throw;
  }
  sqlite3_finalize(statement);
  impl_->check(code);
}

int64_t Writer::bytes() const {
  return impl_->bytes();
}

void Writer::finish() {
  commit();
  impl_->finalize();
  int code = sqlite3_wal_checkpoint_v2(impl_->db, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
  if (code != SQLITE_BUSY) {
    impl_->check(code);
    code = sqlite3_exec(impl_->db, "PRAGMA journal_mode=DELETE", nullptr, nullptr, nullptr);
  }
  // A reader that holds on to the file keeps it in WAL mode: complete, but in two files until the next writer closes.
  if (code != SQLITE_BUSY) impl_->check(code);
  impl_->close();
}

void Writer::discard() noexcept {
  impl_->close();
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) ::unlink((impl_->path + suffix).c_str());
}

}  // namespace taut::store
