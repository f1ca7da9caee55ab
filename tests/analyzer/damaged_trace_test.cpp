// Files that lie, lack or lose: clear errors or warnings, never a crash.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "analyzer/analyzer.h"
#include "taut.h"
#include "tests/analyzer/trace_builder.h"

namespace taut::analyzer {
namespace {

using store::TableId;
using test::TraceBuilder;

TEST(DamagedTrace, RowsThatMakeNoSenseAreLeftOutAndCounted) {
  TraceBuilder trace;
  trace.rank(0);
  trace.step(0, 0, 0, 100);
  trace.step(0, 1, 200, 100);  // ends before it starts (the step's range, too)
  trace.op(0, "aten::mm", 50, 20);
  trace.kernel(0, 0, 7, "gemm", 30, 10);
  trace.writer().insert(TableId::TAUT_MICROBATCH, {999'999, 0, 0, 0, 0, 0, "F"});  // no such event
  trace.writer().insert(TableId::TAUT_COLLECTIVE,
                        {999'999, 0, "all_reduce", 1, 2, 0, 8, "float32", 0, 0, -1, 0, nullptr, nullptr});
  trace.writer().insert(TableId::TAUT_STEP, {-5, 0, 0, 10, 1, 1.0});  // no such rank
  const auto timeline = trace.load();
  EXPECT_EQ(timeline.quality.rejected_rows, 7);
  const auto analysis = analyze(timeline);
  EXPECT_EQ(analysis.trace.steps, 1);
  EXPECT_FALSE(analysis.quality.warnings.empty());
}

TEST(DamagedTrace, AbsurdTimesDoNotOverflow) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();
  TraceBuilder trace;
  trace.rank(0);
  trace.step(0, 0, 0, 100);
  trace.writer().insert(TableId::TAUT_STEP, {0, 1, kLeast, kMost, kMost, 1.0});
  trace.writer().insert(TableId::TAUT_BATCH, {1, 0, kMost, kLeast, kMost, kMost, kLeast, kMost});
  store::NvtxEvent event;
  event.start = kLeast;
  event.end = kMost;
  event.event_type = store::kNvtxPushPop;
  event.global_tid = test::trainer_tid(0);
  trace.writer().insert_nvtx(event);
  const auto timeline = trace.load();
  EXPECT_EQ(timeline.quality.rejected_rows, 3);
  EXPECT_EQ(timeline.end_ns, 100'000);
  EXPECT_NO_THROW(analyze(timeline));
}

TEST(DamagedTrace, HugeNumbersOfRanksStagesAndWorkersAreOnlyNumbers) {
  TraceBuilder trace;
  trace.rank(0, 1'000'000, 0, 2'000'000'000);
  trace.step(0, 0, 0, 100);
  trace.batch(0, 0, 0, 90, 2'000'000'000, -7);
  trace.microbatch(0, 0, 2'000'000'000, 2'000'000'000, 'F', 90, 95);
  trace.collective(0, {.op = "recv", .group_size = 2'000'000'000, .issue = 0, .end = 5, .peer = 2'000'000'000});
  EXPECT_NO_THROW(analyze(trace.load()));
}

TEST(DamagedTrace, RangesOfADeadProcessLastToTheEnd) {
  TraceBuilder trace;
  trace.rank(0);
  trace.step(0, 0, 0, 100);
  store::NvtxEvent open;
  open.start = 50'000;
  open.event_type = store::kNvtxPushPop;
  open.global_tid = test::trainer_tid(0);
  open.text_id = trace.writer().string_id("aten::mm");
  trace.writer().insert_nvtx(open);
  const auto timeline = trace.load();
  const auto& slices = timeline.lanes.at(0).slices;
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices.end[1], 100'000);
  EXPECT_FALSE(timeline.quality.warnings.empty());
}

TEST(DamagedTrace, LossesAreShown) {
  TraceBuilder trace;
  trace.rank(0);
  trace.step(0, 0, 0, 100);
  trace.writer().insert(TableId::TAUT_LOSS, {1, "trainer", 12});
  trace.writer().insert(TableId::TAUT_CLOCK, {0, 0, 450, "collectives"});
  const auto analysis = analyze(trace.load());
  EXPECT_EQ(analysis.quality.dropped_events, 12);
  EXPECT_EQ(analysis.quality.clock_error_ns, 450);
  EXPECT_NE(analysis.quality.warnings.at(0).find("12 events were lost"), std::string::npos);
}

TEST(DamagedTrace, AConfigOfAnotherVersionIsAWarning) {
  TraceBuilder trace;
  trace.rank(0);
  trace.step(0, 0, 0, 100);
  trace.config({{"from_the_future", 1}});
  const auto analysis = analyze(trace.load());
  EXPECT_NE(analysis.quality.warnings.at(0).find("config"), std::string::npos);
}

TEST(DamagedTrace, AnEmptyTraceIsNoCrash) {
  TraceBuilder trace;
  const auto timeline = trace.load();
  const auto analysis = analyze(timeline);
  EXPECT_TRUE(analysis.ranks.empty());
  EXPECT_TRUE(analysis.findings.empty());
  EXPECT_EQ(analysis.trace.events, 0);
}

TEST(DamagedTrace, OtherFilesAreRefused) {
  const std::string path = testing::TempDir() + "not_a_trace.db";
  std::ofstream(path) << "just text";
  EXPECT_THROW(timeline::load(path), Error);
  EXPECT_THROW(timeline::load(path + ".missing"), Error);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace taut::analyzer
