// The partition of steps on hand-made traces whose answer can be counted on paper.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <stdexcept>

#include "analyzer/analyzer.h"
#include "taut.h"
#include "tests/analyzer/trace_builder.h"

namespace taut::metrics {
namespace {

using test::TraceBuilder;

const RankMetrics& rank_of(const Metrics& metrics, int32_t number) {
  for (const RankMetrics& rank : metrics.ranks) {
    if (rank.rank == number) return rank;
  }
  throw std::out_of_range("no such rank");
}

// Microseconds of each category in a rank's step.
void expect_us(const Metrics& metrics, int32_t rank, size_t step, std::map<Category, int64_t> expected) {
  const StepPartition& p = rank_of(metrics, rank).partitions.at(step);
  int64_t total = 0;
  for (Category c : kAllCategories) {
    EXPECT_EQ(p.ns[c], expected[c] * 1000) << "rank " << rank << " " << category_name(c);
    total += p.ns[c];
  }
  EXPECT_EQ(total, p.duration_ns());
}

TEST(Partition, CountsHostTimeByWhatTheTrainerDoes) {
  TraceBuilder trace;
  trace.rank(0);
  trace.step(0, 0, 0, 1000);
  trace.batch(0, 0, 50, 150, 1, 0);
  trace.microbatch(0, 0, 0, 0, 'F', 200, 400);
  trace.op(0, "aten::mm", 210, 390);  // inside the pass: counts once
  trace.microbatch(0, 0, 0, 0, 'B', 400, 700);
  trace.range(0, "optimizer", 750, 850);
  trace.range(0, "checkpoint", 900, 980);
  const auto timeline = trace.load();
  const Metrics metrics = measure(timeline, {});
  expect_us(
      metrics, 0, 0,
      {{Category::loader_stall, 100}, {Category::compute, 600}, {Category::checkpoint, 80}, {Category::host, 220}});
  EXPECT_DOUBLE_EQ(metrics.ranks[0].utilization, 0.6);
  EXPECT_FALSE(metrics.ranks[0].overlap.has_value());
  EXPECT_FALSE(metrics.summary.bubble_fraction.has_value());
}

TEST(Partition, SplitsABlockingWaitWhereTheLastPeerIssued) {
  // Rank 0 is done at 300 and waits; rank 1 issues at 500; the bytes fly until 600. Rank 1 itself only sees the
  // transfer.
  TraceBuilder trace;
  for (int r = 0; r < 2; ++r) {
    trace.rank(r, r);
    trace.step(r, 0, 0, 1000);
    const double issue = r == 0 ? 300 : 500;
    trace.microbatch(r, 0, 0, 0, 'B', 0, issue);
    trace.collective(r, {.issue = issue, .end = 600, .wait_start = issue, .wait_end = 600});
    trace.range(r, "optimizer", 600, 1000);
  }
  const auto timeline = trace.load();
  const Metrics metrics = measure(timeline, {});
  expect_us(metrics, 0, 0, {{Category::compute, 700}, {Category::exposed_communication, 300}});
  expect_us(metrics, 1, 0, {{Category::compute, 900}, {Category::exposed_communication, 100}});
  const auto& segments = metrics.ranks[0].partitions[0].segments;
  ASSERT_EQ(segments.size(), 4u);  // compute, waiting for rank 1, transfer, compute
  EXPECT_EQ(segments[1].waits_for, 1);
  EXPECT_EQ(segments[1].end, 500'000);
  EXPECT_EQ(segments[2].waits_for, -1);
  // The critical path goes through rank 1: 500 of its work, 100 of transfer, 400 of optimizer.
  ASSERT_EQ(metrics.critical_path.size(), 2u);
  EXPECT_EQ(metrics.critical_path[0].kind, Category::compute);
  EXPECT_NEAR(metrics.critical_path[0].share, 0.9, 1e-9);
}

TEST(Partition, HiddenCommunicationIsOverlapNotExposure) {
  TraceBuilder trace;
  for (int r = 0; r < 2; ++r) {
    trace.rank(r, r);
    trace.step(r, 0, 0, 1000);
    trace.microbatch(r, 0, 0, 0, 'B', 0, 900);
    // In flight 400…1000: hidden until 900, then the trainer blocks.
    trace.collective(r, {.issue = 400, .end = 1000, .wait_start = 900, .wait_end = 1000});
  }
  const auto timeline = trace.load();
  const Metrics metrics = measure(timeline, {});
  expect_us(metrics, 0, 0, {{Category::compute, 900}, {Category::exposed_communication, 100}});
  EXPECT_NEAR(metrics.ranks[0].communication_share, 0.6, 1e-9);
  EXPECT_NEAR(metrics.ranks[0].overlap.value(), 500.0 / 600.0, 1e-9);
}

// Two stages, two microbatches, gpipe: F takes 100, B 200, transfers nothing.
//   stage 0: F0 0-100 F1 100-200, waits, B0 500-700 B1 700-900
//   stage 1: waits, F0 100-200 F1 200-300, B0 300-500 B1 500-700
void two_stage_step(TraceBuilder& trace) {
  trace.rank(0, 0, 0, 0);
  trace.rank(1, 0, 0, 1);
  for (int r = 0; r < 2; ++r) trace.step(r, 0, 0, 1000);
  trace.microbatch(0, 0, 0, 0, 'F', 0, 100);
  trace.microbatch(0, 0, 1, 0, 'F', 100, 200);
  trace.microbatch(0, 0, 0, 0, 'B', 500, 700);
  trace.microbatch(0, 0, 1, 0, 'B', 700, 900);
  trace.microbatch(1, 0, 0, 1, 'F', 100, 200);
  trace.microbatch(1, 0, 1, 1, 'F', 200, 300);
  trace.microbatch(1, 0, 0, 1, 'B', 300, 500);
  trace.microbatch(1, 0, 1, 1, 'B', 500, 700);
  const auto message = [&](int from, int64_t seq, double sent, double wait) {
    const int to = 1 - from;
    trace.collective(
        from, {.op = "send", .seq = seq, .issue = sent, .end = sent, .wait_start = sent, .wait_end = sent, .peer = to});
    trace.collective(
        to, {.op = "recv", .seq = seq, .issue = 0, .end = sent, .wait_start = wait, .wait_end = sent, .peer = from});
  };
  message(0, 0, 100, 0);
  message(0, 1, 200, 200);
  message(1, 0, 500, 200);
  message(1, 1, 700, 700);
}

TEST(Partition, WaitingForAnotherStageInsideTheSpanIsBubble) {
  TraceBuilder trace;
  two_stage_step(trace);
  // The tail: stage 1 is done at 700 and waits in the gradient norm's all-reduce until stage 0 has drained at 900.
  for (int r = 0; r < 2; ++r) {
    trace.collective(r, {.group = 9,
                         .issue = r == 0 ? 900.0 : 700.0,
                         .end = 950,
                         .wait_start = r == 0 ? 900.0 : 700.0,
                         .wait_end = 950,
                         .is_async = false});
  }
  const auto timeline = trace.load();
  const Metrics metrics = measure(timeline, {});
  expect_us(metrics, 0, 0,
            {{Category::compute, 600},
             {Category::pipeline_bubble, 300},
             {Category::exposed_communication, 50},
             {Category::host, 50}});
  // Stage 1's first wait (0-100) lies in the span, which begins with stage 0's forward at 0.
  expect_us(metrics, 1, 0,
            {{Category::compute, 600},
             {Category::pipeline_bubble, 300},
             {Category::exposed_communication, 50},
             {Category::host, 50}});
  // Busy 600 of 900 on each of 2 stages; ideal (2-1)/(2+2-1).
  EXPECT_NEAR(metrics.summary.bubble_fraction.value(), 1.0 / 3, 1e-9);
  EXPECT_NEAR(metrics.summary.ideal_bubble_fraction.value(), 1.0 / 3, 1e-9);
}

TEST(Partition, WaitingForTheTensorParallelPeersBatchIsLoaderStall) {
  // Rank 0 loads for its tensor-parallel group and broadcasts; rank 1 waits for the broadcast.
  TraceBuilder trace;
  for (int r = 0; r < 2; ++r) {
    trace.rank(r, 0, r);
    trace.step(r, 0, 0, 1000);
    trace.microbatch(r, 0, 0, 0, 'F', 500, 1000);
  }
  trace.batch(0, 0, 100, 400, 1, 0);
  trace.collective(
      0, {.op = "broadcast", .issue = 420, .end = 500, .wait_start = 420, .wait_end = 500, .is_async = false});
  trace.collective(1, {.op = "broadcast", .issue = 0, .end = 500, .wait_start = 0, .wait_end = 500, .is_async = false});
  const auto timeline = trace.load();
  const Metrics metrics = measure(timeline, {});
  expect_us(metrics, 0, 0,
            {{Category::host, 120},
             {Category::loader_stall, 300},
             {Category::exposed_communication, 80},
             {Category::compute, 500}});
  expect_us(metrics, 1, 0,
            {{Category::loader_stall, 300}, {Category::exposed_communication, 200}, {Category::compute, 500}});
}

TEST(Partition, DataParallelSkewOfALoaderIsExposedCommunication) {
  TraceBuilder trace;
  for (int r = 0; r < 2; ++r) {
    trace.rank(r, r);
    trace.step(r, 0, 0, 1000);
    trace.batch(r, 0, 0, r == 0 ? 400 : 0, 1, 0);
    const double issue = r == 0 ? 900 : 500;
    trace.microbatch(r, 0, 0, 0, 'F', r == 0 ? 400 : 0, issue);
    trace.collective(r, {.issue = issue, .end = 1000, .wait_start = issue, .wait_end = 1000});
  }
  const auto timeline = trace.load();
  const Metrics metrics = measure(timeline, {});
  expect_us(metrics, 0, 0,
            {{Category::loader_stall, 400}, {Category::compute, 500}, {Category::exposed_communication, 100}});
  expect_us(metrics, 1, 0, {{Category::compute, 500}, {Category::exposed_communication, 500}});
}

TEST(Partition, DeviceViewCountsGpuTime) {
  TraceBuilder trace;
  trace.rank(0, 0, 0, 0, 0);
  trace.step(0, 0, 0, 1000);
  trace.op(0, "aten::mm", 0, 900);  // the host only launches
  trace.batch(0, 0, 900, 1000, 1, 0);
  trace.kernel(0, 0, 7, "gemm", 100, 400);
  trace.kernel(0, 0, 13, "ncclDevKernel_AllReduce", 300, 600);
  trace.memcpy(0, 0, 20, 550, 700);
  const auto timeline = trace.load();
  const Metrics metrics = measure(timeline, {});
  expect_us(metrics, 0, 0,
            {{Category::compute, 300},
             {Category::exposed_communication, 200},
             {Category::copy, 100},
             {Category::loader_stall, 100},
             {Category::idle, 300}});
  EXPECT_NEAR(metrics.ranks[0].overlap.value(), 1.0 / 3, 1e-9);
  const auto devices = device_totals(timeline);
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].total_ns, 600'000);
  EXPECT_EQ(devices[0].computation_ns, 300'000);
  EXPECT_EQ(devices[0].exposed_communication_ns, 200'000);
  EXPECT_EQ(devices[0].exposed_copy_ns, 100'000);
  EXPECT_EQ(devices[0].idle_ns, 0);
}

TEST(Partition, SumsToTheStepWhateverOverlaps) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> time(0, 3000);
  TraceBuilder trace;
  for (int r = 0; r < 4; ++r) {
    trace.rank(r, r / 2, 0, r % 2);
    for (int step = 0; step < 3; ++step) trace.step(r, step, 1000.0 * step, 1000.0 * (step + 1));
    for (int i = 0; i < 60; ++i) {
      const double start = time(random), end = start + time(random) / 10;
      trace.microbatch(r, i % 3, i, r % 2, i % 2 ? 'F' : 'B', start, end);
      trace.batch(r, i % 3, time(random), 3001, 1, 0);
      const double issue = time(random);
      trace.collective(r, {.seq = i, .issue = issue, .end = issue + 300, .wait_start = time(random), .wait_end = 3002});
    }
  }
  const auto timeline = trace.load();
  const Metrics metrics = measure(timeline, {});
  for (const RankMetrics& rank : metrics.ranks) {
    double sum = 0;
    for (Category c : kAllCategories) sum += rank.breakdown[c];
    EXPECT_NEAR(sum, 1, 1e-9);
    for (const StepPartition& p : rank.partitions) {
      EXPECT_EQ(std::accumulate(p.ns.value.begin(), p.ns.value.end(), int64_t{0}), p.duration_ns());
      int64_t at = p.start;
      for (const Segment& s : p.segments) {
        EXPECT_EQ(s.start, at);
        at = s.end;
      }
      EXPECT_EQ(at, p.end);
    }
  }
}

TEST(Summary, CountsTokensOncePerReplicaAndTheSlowestRanksStep) {
  // 2 replicas × 2 tensor-parallel ranks, 2 steps of 100 and 110 microseconds on the slowest rank, 500 tokens a
  // replica.
  TraceBuilder trace;
  for (int r = 0; r < 4; ++r) {
    trace.rank(r, r / 2, r % 2);
    trace.step(r, 0, 0, r == 3 ? 100 : 95, 500);
    trace.step(r, 1, 100, r == 3 ? 210 : 200, 500);
  }
  const auto timeline = trace.load();
  const Metrics metrics = measure(timeline, {});
  EXPECT_NEAR(metrics.summary.step_ms, 0.105, 1e-9);
  EXPECT_NEAR(metrics.summary.tokens_per_s, 2000 / 210e-6, 1e-3);
}

TEST(Summary, NamesTheStragglerAndWhatItCosts) {
  // Rank 2 of 4 computes 900 where its peers need 600; all wait for it in the all-reduce.
  TraceBuilder trace;
  for (int r = 0; r < 4; ++r) {
    trace.rank(r, r);
    for (int step = 0; step < 3; ++step) {
      const double begin = 1000.0 * step, issue = begin + (r == 2 ? 900 : 600);
      trace.step(r, step, begin, begin + 1000);
      trace.microbatch(r, step, 0, 0, 'F', begin, issue);
      trace.collective(r, {.group_size = 4,
                           .seq = step,
                           .issue = issue,
                           .end = begin + 950,
                           .wait_start = issue,
                           .wait_end = begin + 950});
    }
  }
  const auto timeline = trace.load();
  const Summary summary = measure(timeline, {}).summary;
  ASSERT_TRUE(summary.straggler.has_value());
  EXPECT_EQ(summary.straggler->rank, 2);
  EXPECT_NEAR(summary.straggler->excess_share, 0.3, 1e-9);
  EXPECT_NEAR(summary.slowdown, 1000.0 / 700.0, 1e-9);
}

TEST(Analysis, LeavesTheWarmUpStepOutUnlessAskedFor) {
  TraceBuilder trace;
  trace.rank(0);
  for (int step = 0; step < 5; ++step) trace.step(0, step, 100 * step, 100 * step + (step == 0 ? 100 : 50));
  const auto timeline = trace.load();
  const auto analysis = analyzer::analyze(timeline);
  EXPECT_EQ(analysis.trace.steps, 4);
  EXPECT_NEAR(analysis.ranks[0].step_ms_p95, 0.05, 1e-9);
  EXPECT_FALSE(analysis.quality.warnings.empty());
  EXPECT_EQ(analyzer::analyze(timeline, {.steps = {.first = 0, .last = {}}, .rank = {}}).trace.steps, 5);
  EXPECT_EQ(analyzer::analyze(timeline, {.steps = {.first = 2, .last = 4}, .rank = 0}).trace.steps, 2);
}

TEST(Analysis, RefusesStepsAndRanksThatAreNotThere) {
  TraceBuilder trace;
  trace.rank(0);
  trace.step(0, 0, 0, 100);
  const auto timeline = trace.load();
  EXPECT_THROW(analyzer::analyze(timeline, {.steps = {.first = 5, .last = 9}, .rank = {}}), Error);
  EXPECT_THROW(analyzer::analyze(timeline, {.steps = {}, .rank = 4}), Error);
}

}  // namespace
}  // namespace taut::metrics
