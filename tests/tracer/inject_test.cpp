// What a program says through NVTX arrives in the trace: libtaut_inject.so, rings and collector together.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "tests/tracer/traced_run.h"
#include "tracer/store/ids.h"

namespace taut::collect {
namespace {

using store::Reader;
using test::named;
using test::NvtxRow;

NvtxRow only(const std::vector<NvtxRow>& rows, const std::string& name) {
  const auto found = named(rows, name);
  EXPECT_EQ(found.size(), 1u) << name;
  return found.empty() ? NvtxRow{} : found[0];
}

bool encloses(const NvtxRow& outer, const NvtxRow& inner) {
  return outer.start <= inner.start && inner.end <= outer.end;
}

TEST(Inject, RangesMarksNamesAndDomains) {
  const auto run = test::trace({{"basics"}});
  EXPECT_EQ(run->status, 0);
  EXPECT_EQ(run->stats.dropped, 0);
  const Reader reader(run->path);
  const auto rows = test::nvtx_rows(reader);
  const int64_t pid = store::global_pid(0, run->pids[0]);

  const NvtxRow outer = only(rows, "outer"), inner = only(rows, "inner"), wide = only(rows, "wide \xc3\xa9");
  for (const NvtxRow& row : {outer, inner, wide}) {
    EXPECT_EQ(row.type, 59);
    EXPECT_TRUE(row.has_end);
    EXPECT_EQ(row.tid, pid + run->pids[0]) << "the main thread's id is the process's";
    EXPECT_EQ(row.domain_id, 0);
  }
  EXPECT_TRUE(encloses(outer, inner));
  EXPECT_TRUE(encloses(outer, wide));
  EXPECT_LE(inner.end, wide.start);
  EXPECT_GE(outer.start, 0) << "times are since the session start";

  const NvtxRow mark = only(rows, "a mark");
  EXPECT_EQ(mark.type, 34);
  EXPECT_FALSE(mark.has_end);
  EXPECT_GE(mark.start, outer.end);

  const NvtxRow one = only(rows, "in one"), two = only(rows, "in two");
  EXPECT_EQ(one.domain, "one");
  EXPECT_EQ(two.domain, "two");
  EXPECT_LE(one.start, two.start);
  EXPECT_LE(one.end, two.end) << "popping domain one does not close domain two's range";
  EXPECT_EQ(test::number(reader, "SELECT category FROM NVTX_EVENTS WHERE rowid=" + std::to_string(two.rowid)), 7);
  EXPECT_EQ(test::number(reader, "SELECT color FROM NVTX_EVENTS WHERE rowid=" + std::to_string(two.rowid)), 0xFF8040C0);
  EXPECT_EQ(only(rows, "seven").type, 33);
  EXPECT_EQ(only(rows, "seven").domain, "two");
  EXPECT_EQ(named(rows, "registered text").size(), 3u);
  EXPECT_EQ(test::number(reader, "SELECT count(*) FROM StringIds WHERE value='registered text'"), 1);

  const NvtxRow across = only(rows, "across threads");
  EXPECT_EQ(across.type, 60);
  EXPECT_TRUE(across.has_end);
  EXPECT_EQ(across.tid, outer.tid);
  EXPECT_NE(across.end_tid, across.tid);
  EXPECT_EQ(store::pid_of(across.end_tid), run->pids[0]);
  EXPECT_FALSE(only(rows, "never ended").has_end);

  const auto threads = reader.query(
      "SELECT s.value FROM ThreadNames t JOIN StringIds s ON s.id=t.nameId WHERE "
      "t.globalTid=" +
      std::to_string(outer.tid));
  ASSERT_EQ(threads.rows.size(), 1u);
  EXPECT_EQ(threads.rows[0][0].text, "main thread");
  const auto processes = reader.query("SELECT globalPid, pid, name FROM PROCESSES");
  ASSERT_EQ(processes.rows.size(), 1u);
  EXPECT_EQ(processes.rows[0][0].integer, pid);
  EXPECT_EQ(processes.rows[0][1].integer, run->pids[0]);
  EXPECT_TRUE(processes.rows[0][2].text.ends_with("tracer_speaker"));
}

TEST(Inject, EveryPayloadTypeKeepsItsValue) {
  const auto run = test::trace({{"payloads"}});
  const Reader reader(run->path);
  const auto value = [&](const std::string& column, const std::string& name) {
    return reader
        .query("SELECT n." + column + " FROM NVTX_EVENTS n JOIN StringIds s ON s.id=n.textId WHERE s.value='" + name +
               "'")
        .rows.at(0)
        .at(0);
  };
  EXPECT_EQ(value("uint64Value", "u64").integer, -1) << "2^64-1 as SQLite's signed integer";
  EXPECT_EQ(value("int64Value", "i64").integer, -9007199254740993);
  EXPECT_EQ(value("doubleValue", "f64").real, 0.1);
  EXPECT_EQ(value("uint32Value", "u32").integer, 4294967295);
  EXPECT_EQ(value("int32Value", "i32").integer, -5);
  EXPECT_EQ(value("floatValue", "f32").real, 0.5);
  EXPECT_EQ(value("int64Value", "i32").type, store::Cell::Type::null);
  for (const size_t size : {0u, 1u, 16u, 17u, 80u, 81u, 128u, 1000u}) {
    const std::string bytes = value("binaryData", "ext" + std::to_string(size)).text;
    const size_t kept = std::min<size_t>(size, 128);
    ASSERT_EQ(bytes.size(), 32 + kept) << size;
    uint32_t schema;
    uint64_t full;
    std::memcpy(&schema, bytes.data() + 8, 4);
    std::memcpy(&full, bytes.data() + 16, 8);
    EXPECT_EQ(schema, (1u << 24) + 5);
    EXPECT_EQ(full, size);
    for (size_t i = 0; i < kept; ++i) ASSERT_EQ(static_cast<unsigned char>(bytes[32 + i]), i % 256) << size;
  }
}

TEST(Inject, ThreadsKeepTheirOwnNesting) {
  constexpr int kThreads = 6, kRanges = 500;
  const auto run = test::trace({{"threads", std::to_string(kThreads), std::to_string(kRanges)},
                                {"threads", std::to_string(kThreads), std::to_string(kRanges)}});
  const Reader reader(run->path);
  EXPECT_EQ(run->stats.dropped, 0);
  EXPECT_EQ(run->stats.processes, 2);
  EXPECT_EQ(run->stats.rows, 2 * kThreads * kRanges * 2);
  EXPECT_EQ(reader.count("NVTX_EVENTS"), run->stats.rows);
  EXPECT_EQ(test::number(reader, "SELECT count(*) FROM NVTX_EVENTS WHERE end IS NULL OR end < start"), 0);
  const auto rows = test::nvtx_rows(reader);
  std::map<int64_t, std::set<std::string>> names;
  for (const NvtxRow& row : rows)
    if (row.name != "nested") names[row.tid].insert(row.name);
  // Threads may follow each other on one ring, never on one thread id at a time.
  EXPECT_GE(names.size(), 2u);
  size_t total = 0;
  for (const auto& [tid, of_thread] : names) total += of_thread.size();
  EXPECT_EQ(total, 2u * kThreads);
  // Each "nested" lies in exactly one range of its own thread.
  std::map<int64_t, std::vector<NvtxRow>> by_thread;
  for (const NvtxRow& row : rows) by_thread[row.tid].push_back(row);
  for (auto& [tid, of_thread] : by_thread) {
    std::sort(of_thread.begin(), of_thread.end(), [](const NvtxRow& a, const NvtxRow& b) {
      return a.start != b.start ? a.start < b.start : a.end > b.end;
    });
    ASSERT_EQ(of_thread.size() % 2, 0u);
    for (size_t i = 0; i + 1 < of_thread.size(); i += 2) ASSERT_LE(of_thread[i + 1].end, of_thread[i].end);
  }
}

TEST(Inject, ServesEveryCopyOfNvtxInTheProcess) {
  const auto run = test::trace({{"second_copy", TAUT_BIN_DIR "/libtracer_second_copy.so"}});
  EXPECT_EQ(run->status, 0);
  const auto rows = test::nvtx_rows(Reader(run->path));
  const NvtxRow first = only(rows, "from the first copy"), second = only(rows, "from the second copy"),
                inner = only(rows, "inner of the second copy");
  EXPECT_EQ(second.domain, "second");
  EXPECT_EQ(inner.domain_id, 0);
  EXPECT_TRUE(encloses(first, second));
  EXPECT_TRUE(encloses(second, inner));
  EXPECT_EQ(first.tid, second.tid);
}

TEST(Inject, AForkedChildHasATraceOfItsOwn) {
  const auto run = test::trace({{"forks"}});
  EXPECT_EQ(run->stats.processes, 2);
  const auto rows = test::nvtx_rows(Reader(run->path));
  const NvtxRow child = only(rows, "only in the child"), open = only(rows, "open across the fork");
  EXPECT_TRUE(open.has_end);
  EXPECT_EQ(store::pid_of(open.tid), run->pids[0]);
  EXPECT_NE(store::pid_of(child.tid), run->pids[0]);
  const auto before = named(rows, "name from before");
  ASSERT_EQ(before.size(), 2u) << "a name registered before the fork means the same in both";
  EXPECT_NE(before[0].tid, before[1].tid);
  EXPECT_EQ(before[0].domain, "before fork");
  EXPECT_EQ(before[1].domain, "before fork");
}

TEST(Inject, AKilledProcessLosesNothingItHadWritten) {
  const auto run = test::trace({{"dies", "5000"}}, {}, /*drain=*/false);
  ASSERT_TRUE(WIFSIGNALED(run->status));
  EXPECT_EQ(WTERMSIG(run->status), SIGKILL);
  EXPECT_EQ(run->stats.dropped, 0);
  const Reader reader(run->path);
  const auto rows = test::nvtx_rows(reader);
  EXPECT_EQ(named(rows, "written").size(), 5000u);
  EXPECT_FALSE(only(rows, "open when killed").has_end);
  const NvtxRow step = only(rows, "step");
  EXPECT_FALSE(step.has_end);
  EXPECT_EQ(step.domain, "taut");
  EXPECT_EQ(reader.count("TAUT_STEP"), 0) << "an unfinished step is not a step";
}

TEST(Inject, WhatDoesNotFitIsCountedAndRangesStillClose) {
  constexpr int kRanges = 100'000;  // nobody drains: more than a ring holds
  const auto run = test::trace({{"floods", std::to_string(kRanges)}}, {}, /*drain=*/false);
  const Reader reader(run->path);
  const auto rows = test::nvtx_rows(reader);
  const auto kept = static_cast<int64_t>(named(rows, "flood").size());
  EXPECT_GT(kept, 10'000);
  EXPECT_EQ(run->stats.dropped, kRanges - kept);
  EXPECT_EQ(test::number(reader, "SELECT sum(dropped) FROM TAUT_LOSS"), kRanges - kept);
  EXPECT_EQ(test::number(reader, "SELECT count(*) FROM NVTX_EVENTS WHERE end IS NULL"), 0);
  EXPECT_TRUE(only(rows, "around the flood").has_end);
}

TEST(Inject, RecordsOnlyTheStepsAskedFor) {
  Collector::Options options;
  options.steps = {{1, 3}};
  const auto run = test::trace({{"windowed", "5"}}, options);
  const Reader reader(run->path);
  std::set<std::string> marks;
  for (const NvtxRow& row : test::nvtx_rows(reader))
    if (row.type == 34) marks.insert(row.name);
  // Before the first step all is recorded; the rank says who it is whatever the window.
  EXPECT_EQ(marks, (std::set<std::string>{"before", "rank", "after 0", "in 1", "thread in 1", "after 1", "in 2",
                                          "thread in 2"}));
  const auto steps = reader.query("SELECT step FROM TAUT_STEP ORDER BY step");
  ASSERT_EQ(steps.rows.size(), 2u);
  EXPECT_EQ(steps.rows[0][0].integer, 1);
  EXPECT_EQ(steps.rows[1][0].integer, 2);
  EXPECT_EQ(test::number(reader, "SELECT count(*) FROM NVTX_EVENTS WHERE end IS NULL AND eventType=59"), 0);
  EXPECT_EQ(reader.meta().at("traced.steps"), "1:3");
}

TEST(Inject, WithoutACollectorTheProgramRunsAsBefore) {
  const pid_t pid = test::start_speaker({"basics"}, {"NVTX_INJECTION64_PATH=" TAUT_BIN_DIR "/libtaut_inject.so"});
  EXPECT_EQ(test::wait_for(pid), 0);
}

TEST(Inject, AFolderThatIsNotThereDoesNotStopTheProgram) {
  const pid_t pid = test::start_speaker(
      {"basics"}, {"NVTX_INJECTION64_PATH=" TAUT_BIN_DIR "/libtaut_inject.so", "TAUT_TRACE_DIR=/nonexistent/rings"});
  EXPECT_EQ(test::wait_for(pid), 0);
}

}  // namespace
}  // namespace taut::collect
