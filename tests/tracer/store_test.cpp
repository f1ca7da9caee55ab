// The trace file as its writer leaves it and its reader finds it.
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "taut.h"
#include "tests/tracer/scratch.h"
#include "tracer/store/ids.h"
#include "tracer/store/reader.h"
#include "tracer/store/writer.h"

namespace taut::store {
namespace {

using test::Scratch;

TEST(Ids, PackAsNsysDoes) {
  // Values of a real export: vmId 281474976710656, pid 1, tid 1.
  EXPECT_EQ(global_tid(0, 1, 1), 281474993487873);
  EXPECT_EQ(pid_of(281474993487873), 1);
  EXPECT_EQ(tid_of(281474993487873), 1);
  EXPECT_EQ(pid_of(283004421275648), 91162);  // PROCESSES row "tail"
  EXPECT_EQ(global_pid(0, 91162), 283004421275648);
  EXPECT_EQ(global_pid_of(global_tid(3, 4194303, 77)), global_pid(3, 4194303));
}

TEST(Schema, HasTheColumnsOfARealExport) {
  const std::string path = TAUT_SOURCE_DIR "/../shared/traces/nsys/mfu_2gpu_before.sqlite";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no ../shared/traces here";
  const Reader real(path);
  for (const Table& table : tables())
    if (real.has(table.name)) {
      EXPECT_EQ(column_names(table), real.column_names(table.name)) << table.name;
    }
}

TEST(Schema, TablesAreFoundByName) {
  EXPECT_EQ(find_table("TAUT_STEP"), TableId::TAUT_STEP);
  EXPECT_EQ(find_table("SOMETHING"), std::nullopt);
  EXPECT_EQ(column_names(table(TableId::TAUT_CLOCK)),
            (std::vector<std::string>{"node", "offsetNs", "errorNs", "method"}));
}

TEST(Store, WhatIsWrittenIsRead) {
  const Scratch scratch;
  const std::string path = scratch / "run.db";
  Writer writer(path);
  writer.begin();
  NvtxEvent plain;
  plain.start = 10;
  plain.end = 20;
  plain.event_type = kNvtxPushPop;
  plain.global_tid = global_tid(0, 12, 13);
  plain.text_id = writer.string_id("step");
  plain.domain_id = 1;
  const int64_t first = writer.insert_nvtx(plain);
  NvtxEvent full = plain;
  full.end = std::nullopt;
  full.range_id = 7;
  full.category = 3;
  full.color = 0xFF112233;
  full.end_global_tid = global_tid(0, 12, 14);
  full.payload_type = NvtxEvent::Payload::f64;
  full.payload = Value(0.25);
  full.text_id = -1;
  full.text = "text itself";
  full.binary = std::string_view("\0\1\2", 3);
  const int64_t second = writer.insert_nvtx(full);
  EXPECT_NE(first, second);
  EXPECT_EQ(writer.string_id("step"), plain.text_id);
  writer.insert(TableId::TAUT_STEP, {0, int64_t{1} << 62, 10, 20, nullptr, 0.1});
  writer.commit();
  writer.finish();
  EXPECT_FALSE(std::filesystem::exists(path + "-wal"));
  EXPECT_FALSE(std::filesystem::exists(path + "-shm"));

  const Reader reader(path);
  EXPECT_TRUE(reader.is_taut());
  EXPECT_FALSE(reader.is_live());
  EXPECT_EQ(reader.count("NVTX_EVENTS"), 2);
  Rows rows = reader.rows("NVTX_EVENTS", {"start", "end", "textId", "doubleValue", "text", "binaryData", "color",
                                          "noSuchColumn", "rangeId"});
  ASSERT_TRUE(rows.next());
  EXPECT_EQ(rows.rowid(), first);
  EXPECT_EQ(rows.integer(0), 10);
  EXPECT_EQ(rows.integer(1), 20);
  EXPECT_EQ(reader.strings()[rows.integer(2)], "step");
  EXPECT_TRUE(rows.is_null(3));
  EXPECT_TRUE(rows.is_null(7));
  EXPECT_EQ(rows.integer(7, 42), 42);
  ASSERT_TRUE(rows.next());
  EXPECT_EQ(rows.rowid(), second);
  EXPECT_TRUE(rows.is_null(1));
  EXPECT_EQ(rows.integer(1, -1), -1);
  EXPECT_EQ(rows.real(3), 0.25);
  EXPECT_EQ(rows.text(4), "text itself");
  EXPECT_EQ(rows.blob(5), std::string_view("\0\1\2", 3));
  EXPECT_EQ(rows.integer(6), 0xFF112233);
  EXPECT_EQ(rows.integer(8), 7);
  EXPECT_FALSE(rows.next());
  EXPECT_FALSE(rows.next());
  Rows steps = reader.rows("TAUT_STEP", {"step", "tokens", "loss"});
  ASSERT_TRUE(steps.next());
  EXPECT_EQ(steps.integer(0), int64_t{1} << 62);
  EXPECT_TRUE(steps.is_null(1));
  EXPECT_EQ(steps.real(2), 0.1);
}

TEST(Store, RowidsAreThoseGivenOutInAnyMixOfRows) {
  const Scratch scratch;
  std::vector<std::pair<int64_t, int64_t>> given;  // rowid, start
  {
    Writer writer(scratch / "run.db");
    writer.begin();
    for (int64_t i = 0; i < 1000; ++i) {
      NvtxEvent event;
      event.start = 7 * i;
      event.event_type = kNvtxPushPop;
      if (i % 3 != 0) event.end = 7 * i + 1;
      if (i % 37 == 0) event.range_id = i;  // a row with more columns
      given.emplace_back(writer.insert_nvtx(event), event.start);
      if (i % 100 == 50) {
        writer.commit();
        writer.begin();
      }
    }
    writer.finish();
  }
  const Reader reader(scratch / "run.db");
  Rows rows = reader.rows("NVTX_EVENTS", {"start", "end", "rangeId"});
  for (const auto& [rowid, start] : given) {
    ASSERT_TRUE(rows.next());
    EXPECT_EQ(rows.rowid(), rowid);
    EXPECT_EQ(rows.integer(0), start);
    EXPECT_EQ(rows.is_null(1), start / 7 % 3 == 0);
    EXPECT_EQ(rows.is_null(2), start / 7 % 37 != 0);
  }
  EXPECT_FALSE(rows.next());
}

TEST(Store, AFinishedTraceHasWhatNsysReadersWant) {
  const Scratch scratch;
  {
    Writer writer(scratch / "run.db");
    writer.finish();
  }
  const Reader reader(scratch / "run.db");
  for (const char* table : {"StringIds", "CUPTI_ACTIVITY_KIND_KERNEL", "META_DATA_EXPORT", "META_DATA_CAPTURE",
                            "TARGET_INFO_SYSTEM_ENV", "ENUM_NSYS_EVENT_TYPE", "ENUM_CUDA_MEMCPY_OPER", "TAUT_META"})
    EXPECT_TRUE(reader.has(table)) << table;
  for (const char* table : {"CUPTI_ACTIVITY_KIND_MEMCPY", "TAUT_STEP", "NVTX_EVENTS"})
    EXPECT_FALSE(reader.has(table)) << table << " was not traced";
  EXPECT_EQ(reader.count("NVTX_EVENTS"), 0);
  EXPECT_FALSE(reader.rows("NVTX_EVENTS", {"start"}).next());
  EXPECT_EQ(reader.query("SELECT value FROM META_DATA_EXPORT WHERE name='EXPORT_SCHEMA_VERSION'").rows[0][0].text,
            "3.25.0");
  EXPECT_EQ(reader.meta().at("schema_version"), "1");
}

TEST(Store, CanBeReadWhileItIsWritten) {
  const Scratch scratch;
  Writer writer(scratch / "run.db");
  writer.begin();
  writer.insert(TableId::TAUT_STEP, {0, 0, 10, 20});
  writer.commit();
  Reader reader(scratch / "run.db");
  EXPECT_TRUE(reader.is_live());
  EXPECT_EQ(reader.count("TAUT_STEP"), 1);
  writer.begin();
  writer.insert(TableId::TAUT_STEP, {0, 1, 20, 30});
  writer.insert(TableId::TAUT_RANK, {0, 1, 0, 0, 0, 0, 0, 0, -1});
  writer.commit();
  EXPECT_EQ(reader.count("TAUT_STEP"), 1) << "a reader sees one moment";
  EXPECT_FALSE(reader.has("TAUT_RANK"));
  reader.refresh();
  EXPECT_EQ(reader.count("TAUT_STEP"), 2);
  EXPECT_TRUE(reader.has("TAUT_RANK"));
}

TEST(Store, ATraceWhoseWriterDiedIsRead) {
  const Scratch scratch;
  Writer writer(scratch / "run.db");
  writer.begin();
  writer.insert(TableId::TAUT_STEP, {0, 0, 10, 20});
  writer.commit();
  // What a killed writer leaves: the file and its log.
  for (const char* suffix : {"", "-wal"})
    std::filesystem::copy_file((scratch / "run.db") + suffix, (scratch / "copy.db") + suffix);
  const Reader reader(scratch / "copy.db");
  EXPECT_EQ(reader.count("TAUT_STEP"), 1);
}

TEST(Store, StringsTolerateUnknownAndHugeIds) {
  const Scratch scratch;
  {
    Writer writer(scratch / "run.db");
    writer.create(TableId::NVTX_EVENTS);
    writer.execute("INSERT INTO StringIds VALUES(5000000000000, 'huge'), (-3, 'negative'), (2, 'two')");
    writer.finish();
  }
  const Reader reader(scratch / "run.db");
  const Strings strings = reader.strings();
  EXPECT_EQ(strings[5000000000000], "huge");
  EXPECT_EQ(strings[-3], "negative");
  EXPECT_EQ(strings[2], "two");
  EXPECT_EQ(strings[0], "?");
  EXPECT_EQ(strings[std::numeric_limits<int64_t>::min()], "?");
  EXPECT_TRUE(strings.contains(2));
  EXPECT_FALSE(strings.contains(1));
}

TEST(Store, RealNsysExportsOpen) {
  const std::filesystem::path folder = TAUT_SOURCE_DIR "/../shared/traces/nsys";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no ../shared/traces here";
  const Reader h100((folder / "mfu_2gpu_before.sqlite").string());
  EXPECT_FALSE(h100.is_taut());
  EXPECT_EQ(h100.count("CUPTI_ACTIVITY_KIND_KERNEL"), 3986 + 24);  // 4,010: see the export's own count
  EXPECT_EQ(h100.count("NVTX_EVENTS"), 462 + 18656);
  int64_t total = 0;
  Rows kernels = h100.rows("CUPTI_ACTIVITY_KIND_KERNEL", {"start", "end", "shortName"});
  const Strings strings = h100.strings();
  while (kernels.next()) {
    total += kernels.integer(1) - kernels.integer(0);
    EXPECT_NE(strings[kernels.integer(2)], "?");
  }
  EXPECT_EQ(total, h100.query("SELECT sum(end-start) FROM CUPTI_ACTIVITY_KIND_KERNEL").rows[0][0].integer);
  const Reader rtx((folder / "mock.sqlite").string());
  EXPECT_TRUE(rtx.has("TARGET_INFO_GPU", "smCount"));
  const Reader small((folder / "healthy_1pct.sqlite").string());
  Rows rows = small.rows("CUPTI_ACTIVITY_KIND_KERNEL", {"start", "globalPid"});
  ASSERT_TRUE(rows.next());
  EXPECT_TRUE(rows.is_null(1)) << "a column that this export lacks";
}

void expect_error(const std::string& path, const std::string& part) {
  try {
    Writer writer(path);
    FAIL() << path << " was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_FALSE(error.hint().empty());
  }
}

TEST(Writer, RefusesPlacesWhereNoTraceCanBe) {
  const Scratch scratch;
  expect_error("", "no name");
  expect_error(scratch / "none/run.db", "no folder");
  expect_error(scratch.path(), "is a folder");
  expect_error("/dev/null", "not a regular file");
  std::ofstream(scratch / "notes.txt") << "my notes on this run, kept";
  expect_error(scratch / "notes.txt", "not a trace");
  std::string text;
  std::getline(std::ifstream(scratch / "notes.txt"), text);
  EXPECT_EQ(text, "my notes on this run, kept");
}

TEST(Writer, ReplacesAnOlderTrace) {
  const Scratch scratch;
  {
    Writer old(scratch / "run.db");
    old.insert(TableId::TAUT_STEP, {0, 0, 10, 20});
    old.finish();
  }
  {
    Writer writer(scratch / "run.db");
    writer.finish();
  }
  EXPECT_FALSE(Reader(scratch / "run.db").has("TAUT_STEP"));
}

TEST(Writer, DiscardLeavesNothing) {
  const Scratch scratch;
  {
    Writer writer(scratch / "run.db");
    writer.begin();
    writer.insert(TableId::TAUT_STEP, {0, 0, 10, 20});
    writer.discard();
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(Writer, SaysThatTheDiskIsFull) {
  const Scratch scratch;
  if (mount("tmpfs", scratch.path().c_str(), "tmpfs", 0, "size=512k") != 0)
    GTEST_SKIP() << "mounting a small file system needs root";
  std::string what, hint;
  {
    Writer writer(scratch / "run.db");
    const std::string text(1000, 'x');
    try {
      for (int i = 0; i < 10000; ++i) {
        writer.begin();
        writer.string_id(text + std::to_string(i));
        writer.commit();
      }
    } catch (const Error& error) {
      what = error.what();
      hint = error.hint();
      writer.discard();
    }
  }
  const bool empty = std::filesystem::is_empty(scratch.path());
  umount(scratch.path().c_str());
  EXPECT_NE(what.find("disk is full"), std::string::npos) << what;
  EXPECT_NE(hint.find("free some space"), std::string::npos) << hint;
  EXPECT_TRUE(empty) << "a part of the trace was left";
}

}  // namespace
}  // namespace taut::store
