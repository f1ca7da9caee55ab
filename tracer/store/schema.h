// The trace file's tables: Nsight Systems' SQLite export layout (schema 3.25.0: same table, column and enum names) plus
// the TAUT_* tables. One table of tables; writer, reader and tests all use it.
//
// Times are integer nanoseconds since the session start. A table that is absent was not traced; StringIds and
// CUPTI_ACTIVITY_KIND_KERNEL are always there, since readers of nsys files want them. Nothing has an index.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace taut::store {

/// Version of the TAUT_* tables, in TAUT_META `schema_version`. A reader refuses a larger number than its own.
inline constexpr int kTautSchemaVersion = 1;
/// The nsys layout that the other tables follow, in META_DATA_EXPORT.
inline constexpr const char* kNsysSchemaVersion = "3.25.0";

enum class TableId : int {
  StringIds,
  NVTX_EVENTS,
  CUPTI_ACTIVITY_KIND_KERNEL,
  CUPTI_ACTIVITY_KIND_MEMCPY,
  CUPTI_ACTIVITY_KIND_MEMSET,
  CUPTI_ACTIVITY_KIND_RUNTIME,
  CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
  CUPTI_ACTIVITY_KIND_OVERHEAD,
  ThreadNames,
  PROCESSES,
  TARGET_INFO_GPU,
  TARGET_INFO_SYSTEM_ENV,
  TARGET_INFO_SESSION_START_TIME,
  META_DATA_CAPTURE,
  META_DATA_EXPORT,
  TAUT_META,
  TAUT_RANK,
  TAUT_STEP,
  TAUT_COLLECTIVE,
  TAUT_MICROBATCH,
  TAUT_BATCH,
  TAUT_MEMORY,
  TAUT_COUNTER,
  TAUT_CLOCK,
  TAUT_LOSS,
  TAUT_GROUP,
  TAUT_TENSOR_USE,
  TAUT_LOADER_WORK,
  TAUT_EXPERT,
};
inline constexpr int kTableCount = static_cast<int>(TableId::TAUT_EXPERT) + 1;

/// A table's name and its columns as SQL, for example "start INTEGER NOT NULL, end INTEGER, …".
struct Table {
  TableId id;
  const char* name;
  const char* columns;
};

/// All tables, in TableId's order.
std::span<const Table> tables();
const Table& table(TableId id);
std::optional<TableId> find_table(std::string_view name);

/// The column names of a table, in order.
std::vector<std::string> column_names(const Table& table);

/// One row of an ENUM_* table: what a number in an nsys column means.
struct EnumRow {
  const char* table;
  int id;
  const char* name;
  const char* label;
};
std::span<const EnumRow> enum_rows();

/// NVTX_EVENTS.eventType.
enum NvtxEventType : int {
  kNvtxCategory = 33,
  kNvtxMark = 34,
  kNvtxPushPop = 59,
  kNvtxStartEnd = 60,
  kNvtxDomain = 75
};

}  // namespace taut::store
