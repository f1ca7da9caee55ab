// Files that are no traces, are damaged, or were made to harm.
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "taut.h"
#include "tests/tracer/scratch.h"
#include "tracer/store/reader.h"
#include "tracer/store/writer.h"

namespace taut::store {
namespace {

using test::Scratch;

/// The error that reading gives, or "" if there is none; also that it names the file and has a hint.
std::string error_of(const std::string& path, const std::function<void(const Reader&)>& use = {}) {
  try {
    const Reader reader(path);
    if (use) use(reader);
  } catch (const Error& error) {
    EXPECT_FALSE(error.hint().empty()) << error.what();
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    return error.what();
  }
  return "";
}

bool says(const std::string& error, const std::string& part) {
  return error.find(part) != std::string::npos;
}
#define EXPECT_SAYS(error, part) EXPECT_PRED2(says, error, part)

void make(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  char* message = nullptr;
  ASSERT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &message), SQLITE_OK) << (message ? message : "");
  sqlite3_close(db);
}

void make_trace(const std::string& path, int events) {
  Writer writer(path);
  writer.begin();
  for (int i = 0; i < events; ++i) {
    NvtxEvent event;
    event.start = i * 100;
    event.end = i * 100 + 50;
    event.event_type = kNvtxPushPop;
    event.text_id = writer.string_id("name " + std::to_string(i % 100));
    writer.insert_nvtx(event);
  }
  writer.finish();
}

void read_all(const Reader& reader) {
  reader.strings();
  reader.meta();
  for (const std::string& table : reader.table_names()) {
    const std::vector<std::string> names = reader.column_names(table);
    const std::vector<std::string_view> columns(names.begin(), names.end());
    Rows rows = reader.rows(table, columns);
    while (rows.next())
      for (int i = 0; i < static_cast<int>(columns.size()); ++i) (void)rows.blob(i);
  }
}

TEST(BadFile, MissingFolderEmptyAndText) {
  const Scratch scratch;
  EXPECT_SAYS(error_of(scratch / "none.db"), "there is no file");
  EXPECT_SAYS(error_of(scratch.path()), "is a folder");
  std::ofstream(scratch / "empty.db").close();
  EXPECT_SAYS(error_of(scratch / "empty.db"), "is empty");
  std::ofstream(scratch / "text.db") << "step,loss\n0,5.5\n";
  EXPECT_SAYS(error_of(scratch / "text.db"), "is not a trace");
  std::ofstream(scratch / "chrome.json") << "{\"traceEvents\":[]}";
  EXPECT_SAYS(error_of(scratch / "chrome.json"), "is not a trace");
  std::ofstream(scratch / "head.db", std::ios::binary) << std::string("SQLite format 3\0", 16);
  EXPECT_SAYS(error_of(scratch / "head.db"), "damaged or cut short");
  mkfifo((scratch / "pipe.db").c_str(), 0600);
  EXPECT_SAYS(error_of(scratch / "pipe.db"), "not a regular file");
  EXPECT_THROW(Reader(""), Error);
}

TEST(BadFile, AnotherProgramsDatabase) {
  const Scratch scratch;
  make(scratch / "photos.db", "CREATE TABLE photos(id INTEGER PRIMARY KEY, name TEXT)");
  EXPECT_SAYS(error_of(scratch / "photos.db"), "not a trace");
  make(scratch / "void.db", "CREATE TABLE a(x); DROP TABLE a");
  EXPECT_SAYS(error_of(scratch / "void.db"), "not a trace");
}

TEST(BadFile, CutShortAnywhere) {
  const Scratch scratch;
  make_trace(scratch / "run.db", 5000);
  const auto size = std::filesystem::file_size(scratch / "run.db");
  for (const auto keep : {size - 1, size - 8192, size / 2, uintmax_t{8192}, uintmax_t{5000}, uintmax_t{150}}) {
    std::filesystem::copy_file(scratch / "run.db", scratch / "cut.db",
                               std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(scratch / "cut.db", keep);
    EXPECT_SAYS(error_of(scratch / "cut.db", read_all), "damaged or cut short") << keep << " of " << size << " bytes";
  }
}

TEST(BadFile, DamagedPagesAreErrorsNeverCrashes) {
  const Scratch scratch;
  make_trace(scratch / "run.db", 5000);
  std::string good;
  {
    std::ifstream file(scratch / "run.db", std::ios::binary);
    good.assign(std::istreambuf_iterator<char>(file), {});
  }
  std::mt19937_64 random(11);
  int errors = 0;
  for (int round = 0; round < 150; ++round) {
    std::string bad = good;
    const size_t page = random() % (bad.size() / 8192);
    const size_t length = round % 3 == 0 ? 8192 : 1 + random() % 64;
    const size_t begin = page * 8192 + (length == 8192 ? 0 : random() % (8192 - length));
    for (size_t i = 0; i < length; ++i)
      if (begin + i >= 100) bad[begin + i] = static_cast<char>(random());  // the header is tested elsewhere
    std::ofstream(scratch / "bad.db", std::ios::binary) << bad;
    errors += !error_of(scratch / "bad.db", read_all).empty();
  }
  EXPECT_GT(errors, 50) << "whole pages of noise must not pass";
}

TEST(HostileFile, ViewsTriggersAndVirtualTablesAreRefused) {
  const Scratch scratch;
  const std::string kernel = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, end INTEGER);";
  const std::string strings = "CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT);";
  make(scratch / "view.db", kernel + "CREATE VIEW StringIds AS SELECT 1 AS id, randomblob(1000000000) AS value");
  EXPECT_SAYS(error_of(scratch / "view.db"), "StringIds is a view");
  make(scratch / "case.db", kernel + strings + "CREATE VIEW nvtx_events AS SELECT 1");
  EXPECT_SAYS(error_of(scratch / "case.db"), "is a view");
  make(scratch / "trigger.db",
       kernel + strings + "CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN DELETE FROM StringIds; END");
  EXPECT_SAYS(error_of(scratch / "trigger.db"), "has a trigger");
  make(scratch / "computed.db", strings +
                                    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, "
                                    "end INTEGER AS (start + 1))");
  EXPECT_SAYS(error_of(scratch / "computed.db"), "computed columns");
  make(scratch / "virtual.db", kernel + "CREATE VIRTUAL TABLE StringIds USING fts5(id, value)");
  EXPECT_SAYS(error_of(scratch / "virtual.db"), "virtual table");
}

TEST(HostileFile, ValuesOfTheWrongTypeAreNamed) {
  const Scratch scratch;
  make(scratch / "types.db",
       "CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value);"
       "CREATE TABLE NVTX_EVENTS(start, end, text); INSERT INTO StringIds VALUES(1, x'00ff');"
       "INSERT INTO NVTX_EVENTS VALUES(1, 2.0, 'ok'), (1, 'soon', 'x'), (1, 2.5, x'00'), (x'01', 3, 'y')");
  const Reader reader(scratch / "types.db");
  Rows rows = reader.rows("NVTX_EVENTS", {"start", "end", "text"});
  ASSERT_TRUE(rows.next());
  EXPECT_EQ(rows.integer(1), 2) << "a whole real is an integer";
  ASSERT_TRUE(rows.next());
  try {
    rows.integer(1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_SAYS(std::string(error.what()), "NVTX_EVENTS.end in row 2 is text, not an integer");
  }
  EXPECT_THROW(rows.real(1), Error);
  ASSERT_TRUE(rows.next());
  EXPECT_THROW(rows.integer(1), Error);
  EXPECT_THROW(rows.text(2), Error);
  ASSERT_TRUE(rows.next());
  EXPECT_THROW(rows.integer(0), Error);
  EXPECT_THROW(reader.strings(), Error);
}

TEST(HostileFile, HugeValuesDoNotFillTheMemory) {
  const Scratch scratch;
  make(scratch / "huge.db",
       "CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT);"
       "CREATE TABLE NVTX_EVENTS(start, end);"
       "INSERT INTO StringIds VALUES(1, zeroblob(100000000))");
  EXPECT_SAYS(error_of(scratch / "huge.db", [](const Reader& reader) { reader.strings(); }), "64 MiB");
}

TEST(HostileFile, ANewerTraceSaysSo) {
  const Scratch scratch;
  {
    Writer writer(scratch / "new.db");
    writer.set_meta("schema_version", "999");
    writer.finish();
  }
  EXPECT_SAYS(error_of(scratch / "new.db"), "newer Taut");
}

}  // namespace
}  // namespace taut::store
