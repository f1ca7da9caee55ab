// Writes a trace file: bulk inserts through prepared statements, strings interned, SQLite in WAL mode while the run
// goes on (so that it can be opened meanwhile) and one plain file in the end.
//
//   Writer w("run.db");
//   w.begin();
//   w.insert_nvtx({.start = 10, .end = 20, .event_type = kNvtxPushPop, .text_id = w.string_id("step"), …});
//   w.insert(TableId::TAUT_STEP, {0, 0, 10, 20, 16384, 5.5});
//   w.commit();
//   w.finish();
//
// Not thread-safe: one thread writes. Every function throws taut::Error when SQLite cannot write (disk full, read-only
// folder, I/O error); the caller then calls discard().
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tracer/store/schema.h"

namespace taut::store {

/// A value to store. Text and blobs are not copied: they must live until insert() returns.
struct Value {
  enum class Type : uint8_t { null, integer, real, text, blob };
  Type type = Type::null;
  union {
    int64_t integer;
    double real;
  };
  std::string_view bytes;

  Value() : integer(0) {}
  Value(std::nullptr_t) : integer(0) {}
  Value(double v) : type(Type::real), real(v) {}
  template <class Int>
  requires std::is_integral_v<Int> Value(Int v) : type(Type::integer), integer(static_cast<int64_t>(v)) {}
  template <class T>
  Value(const std::optional<T>& v) : Value() {
    if (v) *this = Value(*v);
  }
  Value(std::string_view v) : type(Type::text), integer(0), bytes(v) {}
  Value(const std::string& v) : Value(std::string_view(v)) {}
  Value(const char* v) : Value(std::string_view(v)) {}
  static Value blob(std::string_view v) {
    Value value(v);
    value.type = Type::blob;
    return value;
  }
};

/// One NVTX_EVENTS row. `end` is empty for marks and for ranges that were open when their process died.
struct NvtxEvent {
  int64_t start = 0;
  std::optional<int64_t> end;
  int event_type = 0;
  std::optional<int64_t> range_id;
  uint32_t category = 0;          // 0 = none, stored as NULL
  std::optional<uint32_t> color;  // ARGB
  int64_t global_tid = 0;
  std::optional<int64_t> end_global_tid;  // start/end ranges only
  int64_t text_id = -1;                   // StringIds.id; -1 = no text
  int64_t domain_id = 0;
  enum class Payload : uint8_t { none, u64, i64, f64, u32, i32, f32 } payload_type = Payload::none;
  Value payload;            // integer or real, as payload_type says
  std::string_view text;    // used for domains and categories, as nsys does; else empty
  std::string_view binary;  // extended payload with nsys' 32-byte header; empty = none
};

class Writer {
 public:
  /// Creates the file with the tables that every trace has. An older trace at `path` is replaced; anything that is not
  /// an SQLite file is left alone and refused.
  explicit Writer(std::string path);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  const std::string& path() const;

  /// StringIds.id of `text`; the row is written on first use. O(1).
  int64_t string_id(std::string_view text);

  /// A transaction; rows are visible to readers after commit().
  void begin();
  void commit();

  /// Creates a table that was traced, though it may stay empty. Tables are otherwise created by their first row.
  void create(TableId table);
  /// Adds a row (every column, in the table's order; missing ones at the end are NULL), creating the table on first
  /// use, and returns its rowid.
  int64_t insert(TableId table, std::initializer_list<Value> values);
  int64_t insert(TableId table, std::span<const Value> values);
  int64_t insert_nvtx(const NvtxEvent& event);

  /// Sets TAUT_COLLECTIVE.waitStart/waitEnd of a row inserted before.
  void set_collective_wait(int64_t rowid, int64_t wait_start, std::optional<int64_t> wait_end);
  /// Sets TAUT_META[key], replacing an older value.
  void set_meta(std::string_view key, std::string_view value);
  /// Any other statement (rare: renames, deduplication). Parameters are bound in order.
  void execute(const char* sql, std::initializer_list<Value> values = {});

  /// Size of the database, its WAL included.
  int64_t bytes() const;

  /// Commits, folds the WAL in and closes: the trace is one plain file. No call but discard() may follow.
  void finish();
  /// Closes and removes the file, its WAL and its shared-memory index. Never throws.
  void discard() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace taut::store
