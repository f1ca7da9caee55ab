// Opens a trace read-only: one of ours or an Nsight Systems SQLite export. The file is untrusted: it may be missing, a
// folder, empty, cut short, corrupt, hostile or another program's database, and each is one taut::Error with a hint.
//
//   Reader reader("run.db");
//   Rows rows = reader.rows("TAUT_STEP", {"rank", "step", "start", "end", "loss"});
//   while (rows.next()) use(rows.integer(0), …, rows.is_null(4) ? NAN : rows.real(4));
//
// Columns that the file's table lacks read as NULL (schemas differ between versions); a table that is absent gives no
// rows. Not thread-safe: one Reader per thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace taut::store {

/// Rows of one table, in the file's order. Throws taut::Error on a damaged file or a value of the wrong type.
class Rows {
 public:
  ~Rows();
  Rows(Rows&&) noexcept;
  Rows& operator=(Rows&&) noexcept;

  /// Moves to the next row (the first call: to the first); false at the end.
  bool next();

  /// The row's rowid: what `eventId` columns and findings' evidence refer to.
  int64_t rowid() const;
  bool is_null(int column) const;
  /// The value, or `fallback` where it is NULL or the column is absent. An error where it is text or a blob.
  int64_t integer(int column, int64_t fallback = 0) const;
  double real(int column, double fallback = 0) const;
  /// Empty where NULL; valid until next(). An error where it is a blob.
  std::string_view text(int column) const;
  /// The bytes of a blob or text; valid until next().
  std::string_view blob(int column) const;

 private:
  friend class Reader;
  struct Impl;
  explicit Rows(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// StringIds in memory. Unknown ids give "?" rather than an error: traces that were sliced have such.
class Strings {
 public:
  std::string_view operator[](int64_t id) const;
  bool contains(int64_t id) const;
  size_t size() const { return dense_.size() + sparse_.size(); }

 private:
  friend class Reader;
  std::vector<std::string> dense_;  // ids from 0 on
  std::vector<bool> present_;
  std::unordered_map<int64_t, std::string> sparse_;
};

/// What `taut query` prints: column names and rows as text ("" with is_null set for NULL).
struct QueryLimits {
  int64_t max_rows = 1'000'000;
  std::chrono::milliseconds max_time{60'000};
};
struct Cell {
  enum class Type : uint8_t { null, integer, real, text, blob } type = Type::null;
  int64_t integer = 0;
  double real = 0;
  std::string text;  // text, or a blob's bytes
};
struct QueryResult {
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;
  bool cut = false;  // max_rows was reached
};

class Reader {
 public:
  explicit Reader(std::string path);
  ~Reader();
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;

  const std::string& path() const;
  /// True for a trace that Taut wrote (it has TAUT_META), false for an nsys export.
  bool is_taut() const;
  /// True while the file has a WAL: the run that writes it goes on, or its collector was killed.
  bool is_live() const;

  bool has(std::string_view table) const;
  bool has(std::string_view table, std::string_view column) const;
  std::vector<std::string> table_names() const;
  std::vector<std::string> column_names(std::string_view table) const;
  int64_t count(std::string_view table) const;

  /// All rows of `table`, the named columns numbered from 0.
  Rows rows(std::string_view table, std::initializer_list<std::string_view> columns) const;
  Rows rows(std::string_view table, std::span<const std::string_view> columns) const;

  /// StringIds, read once per call.
  Strings strings() const;
  /// TAUT_META; empty for an nsys export.
  std::map<std::string, std::string> meta() const;

  /// Runs one read-only statement (SELECT, WITH, VALUES, EXPLAIN). Throws taut::Error with exit code 2 for SQL that is
  /// wrong or would change anything, attach files or load code, and 1 when it takes longer than allowed.
  QueryResult query(std::string_view sql, const QueryLimits& limits = {}) const;

  /// A Reader sees the file as it was when it was opened; this moves it to the present.
  void refresh();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace taut::store
