#include "tracer/store/reader.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "taut.h"
#include "tracer/store/open_check.h"
#include "tracer/store/query.h"
#include "tracer/store/schema.h"

namespace taut::store {
namespace {

struct Close {
  void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};

std::string quoted(std::string_view name) {
  std::string out = "\"";
  for (const char c : name) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

struct CaseLess {
  using is_transparent = void;
  bool operator()(std::string_view a, std::string_view b) const {
    const int order = sqlite3_strnicmp(a.data(), b.data(), static_cast<int>(std::min(a.size(), b.size())));
    return order != 0 ? order < 0 : a.size() < b.size();
  }
};

constexpr int64_t kDenseStrings = 1 << 24;  // larger ids go into a map, so that one odd id does not cost gigabytes

}  // namespace

struct Rows::Impl {
  std::unique_ptr<sqlite3_stmt, Close> statement;  // null: the table is absent
  sqlite3* db = nullptr;
  std::string path, table;
  std::vector<std::string> names;  // of the columns asked for
  std::vector<int> columns;        // their number in the statement; -1 = absent

  int at(int column) const { return columns[static_cast<size_t>(column)]; }

  [[noreturn]] void wrong_type(int column, const char* wanted) const {
    static constexpr const char* kTypes[] = {"?", "an integer", "a real number", "text", "a blob", "NULL"};
    throw Error(path + ": " + table + "." + names[static_cast<size_t>(column)] + " in row " +
                    std::to_string(sqlite3_column_int64(statement.get(), 0)) + " is " +
                    kTypes[sqlite3_column_type(statement.get(), at(column))] + ", not " + wanted,
                "the file may be damaged or written by another program; export or record it again");
  }
};

Rows::Rows(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Rows::~Rows() = default;
Rows::Rows(Rows&&) noexcept = default;
Rows& Rows::operator=(Rows&&) noexcept = default;

bool Rows::next() {
  if (!impl_->statement) return false;
  const int code = sqlite3_step(impl_->statement.get());
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) fail_reading(impl_->db, code, impl_->path);
  impl_->statement.reset();
  return false;
}

int64_t Rows::rowid() const {
  return sqlite3_column_int64(impl_->statement.get(), 0);
}

bool Rows::is_null(int column) const {
  const int at = impl_->at(column);
  return at < 0 || sqlite3_column_type(impl_->statement.get(), at) == SQLITE_NULL;
}

int64_t Rows::integer(int column, int64_t fallback) const {
  const int at = impl_->at(column);
  if (at < 0) return fallback;
  switch (sqlite3_column_type(impl_->statement.get(), at)) {
    case SQLITE_INTEGER:
      return sqlite3_column_int64(impl_->statement.get(), at);
    case SQLITE_NULL:
      return fallback;
    case SQLITE_FLOAT: {
      const double value = sqlite3_column_double(impl_->statement.get(), at);
      if (std::trunc(value) == value && std::abs(value) < 9.0e18) return static_cast<int64_t>(value);
      [[fallthrough]];
    }
    default:
      impl_->wrong_type(column, "an integer");
  }
}

double Rows::real(int column, double fallback) const {
  const int at = impl_->at(column);
  if (at < 0) return fallback;
  switch (sqlite3_column_type(impl_->statement.get(), at)) {
    case SQLITE_INTEGER:
    case SQLITE_FLOAT:
      return sqlite3_column_double(impl_->statement.get(), at);
    case SQLITE_NULL:
      return fallback;
    default:
      impl_->wrong_type(column, "a number");
  }
}

std::string_view Rows::text(int column) const {
  const int at = impl_->at(column);
  if (at >= 0 && sqlite3_column_type(impl_->statement.get(), at) == SQLITE_BLOB) impl_->wrong_type(column, "text");
  return blob(column);
}

std::string_view Rows::blob(int column) const {
  const int at = impl_->at(column);
  if (at < 0) return {};
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(impl_->statement.get(), at));
  return bytes ? std::string_view(bytes, static_cast<size_t>(sqlite3_column_bytes(impl_->statement.get(), at)))
               : std::string_view{};
}

std::string_view Strings::operator[](int64_t id) const {
  if (id >= 0 && static_cast<size_t>(id) < dense_.size() && present_[static_cast<size_t>(id)])
    return dense_[static_cast<size_t>(id)];
  const auto found = sparse_.find(id);
  return found == sparse_.end() ? std::string_view("?") : std::string_view(found->second);
}

bool Strings::contains(int64_t id) const {
  return (id >= 0 && static_cast<size_t>(id) < dense_.size() && present_[static_cast<size_t>(id)]) ||
         sparse_.contains(id);
}

struct Reader::Impl {
  std::string path;
  std::unique_ptr<sqlite3, Close> db;
  std::map<std::string, std::vector<std::string>, CaseLess> tables;  // name -> columns

  void begin() {
    const int code = sqlite3_exec(db.get(), "BEGIN", nullptr, nullptr, nullptr);
    if (code != SQLITE_OK) fail_reading(db.get(), code, path);
    // The snapshot is taken by the first read.
    const int read = sqlite3_exec(db.get(), "SELECT count(*) FROM sqlite_schema", nullptr, nullptr, nullptr);
    if (read != SQLITE_OK) fail_reading(db.get(), read, path);
  }

  void load_schema() {
    check_schema(db.get(), path);
    tables.clear();
    sqlite3_stmt* raw = nullptr;
    int code = sqlite3_prepare_v2(db.get(),
                                  "SELECT s.name, c.name FROM sqlite_schema s, pragma_table_info(s.name) c WHERE "
                                  "s.type='table' AND s.sql LIKE 'CREATE TABLE%'",
                                  -1, &raw, nullptr);
    const std::unique_ptr<sqlite3_stmt, Close> statement(raw);
    if (code != SQLITE_OK) fail_reading(db.get(), code, path);
    while ((code = sqlite3_step(raw)) == SQLITE_ROW)
      tables[reinterpret_cast<const char*>(sqlite3_column_text(raw, 0))].emplace_back(
          reinterpret_cast<const char*>(sqlite3_column_text(raw, 1)));
    if (code != SQLITE_DONE) fail_reading(db.get(), code, path);
  }
};

Reader::Reader(std::string path) : impl_(std::make_unique<Impl>()) {
  impl_->path = std::move(path);
  check_file(impl_->path);
  std::string plain = impl_->path;
  if (plain.find('/') == std::string::npos) plain.insert(0, "./");
  sqlite3* db = nullptr;
  const int code = sqlite3_open_v2(plain.c_str(), &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, nullptr);
  impl_->db.reset(db);
  if (code != SQLITE_OK) fail_reading(db, code, impl_->path);
  sqlite3_busy_timeout(db, 5000);
  harden(db);
  impl_->begin();
  impl_->load_schema();
  if (!is_taut()) return;
  const auto about = meta();
  if (const auto version = about.find("schema_version"); version != about.end()) {
    int number = 0;
    const auto [end, error] =
        std::from_chars(version->second.data(), version->second.data() + version->second.size(), number);
    if (error != std::errc() || number > kTautSchemaVersion)
      throw Error(impl_->path + " was written by a newer Taut (trace schema " + version->second + ", this one reads " +
                      std::to_string(kTautSchemaVersion) + ")",
                  "update Taut");
  }
}

Reader::~Reader() = default;
Reader::Reader(Reader&&) noexcept = default;
Reader& Reader::operator=(Reader&&) noexcept = default;

const std::string& Reader::path() const {
  return impl_->path;
}

bool Reader::is_taut() const {
  return has("TAUT_META");
}

bool Reader::is_live() const {
  struct stat info {};
  return ::stat((impl_->path + "-wal").c_str(), &info) == 0 && info.st_size > 0;
}

bool Reader::has(std::string_view table) const {
  return impl_->tables.contains(table);
}

bool Reader::has(std::string_view table, std::string_view column) const {
  const auto found = impl_->tables.find(table);
  if (found == impl_->tables.end()) return false;
  for (const std::string& name : found->second)
    if (!CaseLess()(name, column) && !CaseLess()(column, name)) return true;
  return false;
}

std::vector<std::string> Reader::table_names() const {
  std::vector<std::string> names;
  for (const auto& [name, columns] : impl_->tables) names.push_back(name);
  return names;
}

std::vector<std::string> Reader::column_names(std::string_view table) const {
  const auto found = impl_->tables.find(table);
  return found == impl_->tables.end() ? std::vector<std::string>{} : found->second;
}

int64_t Reader::count(std::string_view table) const {
  if (!has(table)) return 0;
  sqlite3_stmt* raw = nullptr;
  const std::string sql = "SELECT count(*) FROM " + quoted(table) + " NOT INDEXED";
  int code = sqlite3_prepare_v2(impl_->db.get(), sql.c_str(), -1, &raw, nullptr);
  const std::unique_ptr<sqlite3_stmt, Close> statement(raw);
  if (code == SQLITE_OK) code = sqlite3_step(raw);
  if (code != SQLITE_ROW) fail_reading(impl_->db.get(), code, impl_->path);
  return sqlite3_column_int64(raw, 0);
}

Rows Reader::rows(std::string_view table, std::initializer_list<std::string_view> columns) const {
  return rows(table, std::span<const std::string_view>(columns.begin(), columns.size()));
}

Rows Reader::rows(std::string_view table, std::span<const std::string_view> columns) const {
  auto rows = std::make_unique<Rows::Impl>();
  rows->db = impl_->db.get();
  rows->path = impl_->path;
  rows->table = table;
  std::string sql = "SELECT rowid";
  int number = 0;
  for (const std::string_view column : columns) {
    rows->names.emplace_back(column);
    const bool present = has(table, column);
    rows->columns.push_back(present ? ++number : -1);
    if (present) sql.append(",").append(quoted(column));
  }
  if (has(table)) {
    // An index of a hostile file may disagree with its table.
    sql += " FROM " + quoted(table) + " NOT INDEXED";
    sqlite3_stmt* raw = nullptr;
    const int code = sqlite3_prepare_v2(impl_->db.get(), sql.c_str(), -1, &raw, nullptr);
    rows->statement.reset(raw);
    if (code != SQLITE_OK) fail_reading(impl_->db.get(), code, impl_->path);
  }
  return Rows(std::move(rows));
}

Strings Reader::strings() const {
  Strings strings;
  Rows rows = this->rows("StringIds", {"id", "value"});
  while (rows.next()) {
    const int64_t id = rows.integer(0, -1);
    const std::string_view value = rows.text(1);
    // nsys numbers from 0 on; leave room for gaps, but not for one huge id.
    const auto dense_end = static_cast<int64_t>(strings.dense_.size());
    if (id >= 0 && id < kDenseStrings && id <= 2 * dense_end + 4096) {
      if (id >= dense_end) {
        strings.dense_.resize(static_cast<size_t>(id) + 1);
        strings.present_.resize(static_cast<size_t>(id) + 1);
      }
      strings.dense_[static_cast<size_t>(id)] = value;
      strings.present_[static_cast<size_t>(id)] = true;
    } else {
      strings.sparse_[id] = value;
    }
  }
  return strings;
}

std::map<std::string, std::string> Reader::meta() const {
  std::map<std::string, std::string> values;
  Rows rows = this->rows("TAUT_META", {"key", "value"});
  while (rows.next()) values[std::string(rows.text(0))] = rows.text(1);
  return values;
}

QueryResult Reader::query(std::string_view sql, const QueryLimits& limits) const {
  return run_query(impl_->db.get(), impl_->path, sql, limits);
}

void Reader::refresh() {
  sqlite3_exec(impl_->db.get(), "ROLLBACK", nullptr, nullptr, nullptr);
  impl_->begin();
  impl_->load_schema();
}

}  // namespace taut::store
