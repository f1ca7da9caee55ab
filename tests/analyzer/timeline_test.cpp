// Loading: lanes, nesting, kinds, steps and typed events.
#include "analyzer/timeline/timeline.h"

#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <stdexcept>

#include "analyzer/metrics/statistics.h"
#include "analyzer/timeline/classification.h"
#include "analyzer/timeline/lane_builder.h"
#include "tests/analyzer/trace_builder.h"
#include "tracer/store/ids.h"

namespace taut::timeline {
namespace {

using test::TraceBuilder;

const Lane& lane_of(const Timeline& timeline, int32_t rank, LaneType type) {
  for (const Lane& lane : timeline.lanes) {
    if (lane.rank == rank && lane.type == type) return lane;
  }
  throw std::out_of_range("no such lane");
}

TEST(Timeline, NestsRangesAndKeepsTheirRows) {
  TraceBuilder trace;
  trace.rank(0);
  const int64_t inner = trace.op(0, "aten::mm", 20, 40);
  const int64_t outer = trace.op(0, "aten::linear", 10, 60);
  const int64_t later = trace.op(0, "aten::gelu", 60, 70);
  trace.step(0, 0, 0, 100);
  const Timeline timeline = trace.load();
  const Lane& lane = lane_of(timeline, 0, LaneType::trainer);
  ASSERT_EQ(lane.slices.size(), 4u);
  EXPECT_EQ(timeline.names[lane.slices.name[0]], "step");
  EXPECT_EQ(lane.slices.kind[0], Kind::step);
  EXPECT_EQ(lane.slices.rowid[1], outer);
  EXPECT_EQ(lane.slices.rowid[2], inner);
  EXPECT_EQ(lane.slices.rowid[3], later);
  EXPECT_EQ(lane.slices.parent, (std::vector<int32_t>{-1, 0, 1, 0}));
  EXPECT_EQ(lane.slices.depth, (std::vector<uint16_t>{0, 1, 2, 1}));
  EXPECT_EQ(lane.slices.kind[2], Kind::compute);
  EXPECT_EQ(lane.max_depth, 2);
  EXPECT_EQ(timeline.ranks.at(0).trainer_lane, 0);
  EXPECT_EQ(timeline.end_ns, 100'000);
}

TEST(Timeline, SeparatesLoadersCollectivesAndStreams) {
  TraceBuilder trace;
  trace.rank(0, 0, 0, 0, 0);
  trace.step(0, 0, 0, 100);
  trace.work(0, 3, 0, "read", 0, 50);
  trace.work(0, 3, 0, "blocked", 50, 60);
  trace.collective(0, {.issue = 10, .end = 50});
  trace.collective(0, {.seq = 1, .issue = 20, .end = 60});
  trace.collective(0, {.seq = 2, .issue = 55, .end = 70});
  trace.kernel(0, 0, 7, "gemm", 5, 9);
  const Timeline timeline = trace.load();
  const Lane& loader = lane_of(timeline, 0, LaneType::loader);
  EXPECT_EQ(loader.title, "rank 0 loader 3");
  EXPECT_EQ(loader.slices.kind[0], Kind::loader);
  EXPECT_EQ(loader.slices.kind[1], Kind::sync);
  // Overlapping ranges go side by side, and a row is used again once it is free.
  EXPECT_EQ(lane_of(timeline, 0, LaneType::collectives).slices.depth, (std::vector<uint16_t>{0, 1, 0}));
  EXPECT_EQ(lane_of(timeline, 0, LaneType::gpu_stream).title, "rank 0 GPU 0 stream 7");
  const Rank& rank = timeline.ranks.at(0);
  ASSERT_EQ(rank.collectives.size(), 3u);
  EXPECT_EQ(rank.collectives[0].op, Op::all_reduce);
  EXPECT_EQ(rank.collectives[0].wait_start, rank.collectives[0].wait_end);  // asynchronous, never waited for
  ASSERT_EQ(rank.loader_work.size(), 2u);
  EXPECT_EQ(rank.loader_work[0].worker, 3);
}

TEST(Timeline, TellsWaitingForAStageFromOtherWaits) {
  TraceBuilder trace;
  trace.rank(0, 0, 0, 0);
  trace.rank(1, 0, 0, 1);
  for (int r = 0; r < 2; ++r) trace.step(r, 0, 0, 100);
  trace.collective(1, {.op = "recv", .issue = 0, .end = 30, .wait_start = 10, .wait_end = 30, .peer = 0});
  trace.collective(1, {.seq = 5, .issue = 40, .end = 50, .wait_start = 40, .wait_end = 50});
  const Timeline timeline = trace.load();
  const Slices& slices = lane_of(timeline, 1, LaneType::trainer).slices;
  ASSERT_EQ(slices.size(), 3u);
  EXPECT_EQ(slices.kind[1], Kind::pipeline_wait);
  EXPECT_EQ(slices.kind[2], Kind::communication);
}

TEST(Timeline, TakesStepsFromProfilerRangesWhereThereAreNoOwn) {
  TraceBuilder trace;
  trace.op(0, "ProfilerStep#7", 0, 100);
  trace.op(0, "ProfilerStep#8", 100, 210);
  trace.op(0, "aten::mm", 10, 20);
  const Timeline timeline = trace.load();
  EXPECT_EQ(timeline.step_source, StepSource::profiler_step);
  ASSERT_EQ(timeline.ranks.size(), 1u);
  ASSERT_EQ(timeline.ranks[0].steps.size(), 2u);
  EXPECT_EQ(timeline.ranks[0].steps[1].step, 8);
  EXPECT_EQ(timeline.ranks[0].steps[1].end, 210'000);
}

TEST(Timeline, TakesStepsFromOptimizerRangesElse) {
  TraceBuilder trace;
  for (int i = 0; i < 3; ++i) trace.op(0, "Optimizer.step#AdamW.step", 100 * i + 80, 100 * i + 100);
  const Timeline timeline = trace.load();
  EXPECT_EQ(timeline.step_source, StepSource::optimizer_step);
  ASSERT_EQ(timeline.ranks.at(0).steps.size(), 2u);
  EXPECT_EQ(timeline.ranks[0].steps[0].start, 100'000);
  EXPECT_EQ(timeline.ranks[0].steps[0].end, 200'000);
}

TEST(Timeline, ARestartedStepCountsOnce) {
  TraceBuilder trace;
  trace.rank(0);
  trace.step(0, 0, 0, 100);
  trace.step(0, 1, 100, 200);
  trace.step(0, 1, 300, 410);
  const Timeline timeline = trace.load();
  ASSERT_EQ(timeline.ranks.at(0).steps.size(), 2u);
  EXPECT_EQ(timeline.ranks[0].steps[1].start, 300'000);
  EXPECT_FALSE(timeline.quality.warnings.empty());
}

TEST(Classification, KnowsTheNamesOfOthers) {
  EXPECT_EQ(classify_kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL"), Kind::communication);
  EXPECT_EQ(classify_kernel("void rcclGenericKernel<1>"), Kind::communication);
  EXPECT_EQ(classify_kernel("flash_fwd_kernel"), Kind::compute);
  EXPECT_EQ(classify_cuda_call("cudaStreamSynchronize_v3020"), Kind::sync);
  EXPECT_EQ(classify_cuda_call("cudaLaunchKernel_v7000"), Kind::host);
  EXPECT_EQ(classify_range("", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"), Kind::loader);
  EXPECT_EQ(classify_range("", "aten::mm, op_id = 5"), Kind::compute);
  EXPECT_EQ(classify_range("NCCL", "AllReduce"), Kind::communication);
  EXPECT_EQ(classify_range("taut", "checkpoint"), Kind::checkpoint);
  EXPECT_EQ(classify_range("", "my own range"), Kind::other);
}

TEST(Statistics, SelfTimeLeavesOutChildren) {
  TraceBuilder trace;
  trace.rank(0);
  trace.op(0, "inner", 20, 40);
  trace.op(0, "inner", 45, 51);
  trace.op(0, "outer", 10, 60);
  const auto rows = metrics::operation_totals(trace.load(), metrics::GroupBy::name);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].key, "inner");
  EXPECT_EQ(rows[0].count, 2);
  EXPECT_EQ(rows[0].total_ns, 26'000);
  EXPECT_EQ(rows[0].min_ns, 6'000);
  EXPECT_EQ(rows[1].self_ns, 24'000);
  EXPECT_EQ(rows[1].total_ns, 50'000);
}

TEST(LaneBuilder, CrossingRangesGetNoParentThatTheyLeave) {
  std::vector<RawSlice> raw{{.start = 0, .end = 10}, {.start = 5, .end = 15}, {.start = 6, .end = 9}};
  Lane lane;
  build_lane(raw, Layout::nested, lane);
  EXPECT_EQ(lane.slices.parent, (std::vector<int32_t>{-1, -1, 1}));
}

TEST(Timeline, LoadsAMillionSlices) {
  TraceBuilder trace;
  trace.rank(0);
  for (int i = 0; i < 1'000'000; ++i) trace.op(0, i % 2 ? "aten::mm" : "aten::add", i, i + 0.5);
  trace.step(0, 0, 0, 1'000'000);
  trace.finish();
  const auto begin = std::chrono::steady_clock::now();
  const Timeline timeline = trace.load();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::cout << "a million slices loaded in " << seconds.count() << " s\n";
  EXPECT_EQ(timeline.events, 1'000'001);
}

}  // namespace
}  // namespace taut::timeline
