// The redundant-allgather rule: content identity decides, not names.
#include <gtest/gtest.h>

#include <cstdio>

#include "analyzer/analyzer.h"
#include "tests/analyzer/trace_builder.h"

namespace taut::detect {
namespace {

using test::TraceBuilder;

struct Run {
  int gathers = 4;
  double gather_us = 500, compute_us = 1000;
  double used_share = 0.5;  // of the gathered bytes, by each of the two members
  bool mark_uses = true;
  bool same_content = false;  // every gather of a step has the first one's content
  double late_us = 0;         // rank 1 issues that much later
  bool zero3 = false;         // data parallel under ZeRO 3, two microbatches a step, instead of tensor parallel
};

// Two tensor-parallel ranks; a step is `gathers` × (compute, gather), the gather blocking.
void write(TraceBuilder& trace, const Run& run) {
  nlohmann::json config = {
      {"model",
       {{"hidden_size", 64}, {"num_layers", 2}, {"num_attention_heads", 2}, {"seq_length", 64}, {"vocab_size", 512}}},
      {"data", {{"path", "/data"}}},
      {"world_size", 2},
      {"train_batch_size", 8},
      {"train_micro_batch_size_per_gpu", 8},
      {"parallel", {{"tensor_parallel_size", 2}, {"gather_output", true}}}};
  if (run.zero3) {
    config["model"]["num_layers"] = 8;
    config["train_micro_batch_size_per_gpu"] = 2;
    config["zero_optimization"] = {{"stage", 3}, {"stage3_param_persistence_threshold", 0}};
    config.erase("parallel");
  }
  trace.config(config);
  for (int r = 0; r < 2; ++r) {
    trace.rank(r, 0, r);
    double now = 0;
    int64_t seq = 0;
    for (int step = 0; step < 6; ++step) {
      const double begin = now;
      const double piece = run.compute_us + (r == 1 ? run.late_us : 0);
      for (int i = 0; i < run.gathers; ++i) {
        const double issue = now + piece, end = now + run.compute_us + run.late_us + run.gather_us;
        trace.microbatch(r, step, i, 0, 'F', now, issue);
        const int64_t id = run.same_content ? 1 : 1 + i, version = run.same_content ? 1 + step : 1 + step;
        trace.collective(r, {.op = "all_gather",
                             .seq = seq++,
                             .issue = issue,
                             .end = end,
                             .wait_start = issue,
                             .wait_end = end,
                             .is_async = false,
                             .bytes = 8192,
                             .tensor_id = id,
                             .tensor_version = version});
        if (run.mark_uses) trace.tensor_use(r, id, version, static_cast<int64_t>(8192 * run.used_share), 8192, end);
        now = end;
      }
      trace.step(r, step, begin, now);
    }
  }
}

std::vector<Finding> findings_of(const Run& run) {
  TraceBuilder trace;
  write(trace, run);
  return analyzer::analyze(trace.load()).findings;
}

TEST(RedundantAllgather, FindsOutputsThatAreOnlySliced) {
  const auto findings = findings_of({});
  ASSERT_EQ(findings.size(), 1u);
  const Finding& f = findings[0];
  EXPECT_EQ(f.id, "redundant-allgather#1");
  EXPECT_EQ(f.severity, Severity::high);
  EXPECT_NEAR(f.cost_ms_per_step, 2.0, 1e-6);  // 4 × 500 µs
  EXPECT_NEAR(f.cost_share, 2.0 / 6.0, 1e-6);  // of 4 × 1500 µs
  ASSERT_EQ(f.suggestions.size(), 1u);
  EXPECT_EQ(f.suggestions[0].patch, nlohmann::ordered_json::parse(R"({"parallel":{"gather_output":false}})"));
  EXPECT_NEAR(f.suggestions[0].predicted.step_ms, 4.0, 1e-6);
  EXPECT_NEAR(f.suggestions[0].predicted.speedup, 1.5, 1e-6);
  EXPECT_EQ(f.evidence.size(), 6u);
  for (const Evidence& e : f.evidence) EXPECT_EQ(e.table, "TAUT_COLLECTIVE");
}

TEST(RedundantAllgather, CountsBytesInFlightNotALatePeer) {
  // Rank 1 comes 300 µs late to each gather: the transfer still takes 500; of the wait for rank 1 half is hoped for.
  const auto findings = findings_of({.late_us = 300});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_NEAR(findings[0].cost_ms_per_step, 2.0 + 0.5 * (4 * 0.3) / 2, 1e-6);
}

TEST(RedundantAllgather, CountsPuttingTheShardsTogether) {
  TraceBuilder trace;
  write(trace, {.mark_uses = false});
  for (int r = 0; r < 2; ++r) {
    for (int step = 0; step < 6; ++step) {
      for (int i = 0; i < 4; ++i) {
        // The use is marked 200 µs after each gather of 1500 µs.
        trace.tensor_use(r, 1 + i, 1 + step, 4096, 8192, 1500 * (4 * step + i + 1) + 200);
      }
    }
  }
  const auto findings = analyzer::analyze(trace.load()).findings;
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_NEAR(findings[0].cost_ms_per_step, 4 * (0.5 + 0.2), 1e-6);
}

TEST(RedundantAllgather, FindsContentGatheredAgain) {
  const auto findings = findings_of({.used_share = 1.0, .same_content = true});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_NE(findings[0].title.find("again"), std::string::npos);
  EXPECT_NEAR(findings[0].cost_ms_per_step, 1.5, 1e-6);  // three of four
  EXPECT_TRUE(findings[0].suggestions.at(0).patch.empty());
}

TEST(RedundantAllgather, WeightsUnderZeroThreeCanBeKept) {
  // Two microbatches gather four times: of three repeats (500 µs each) backward's two go.
  const auto findings = findings_of({.used_share = 1.0, .same_content = true, .zero3 = true});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_NEAR(findings[0].cost_ms_per_step, 1.5, 1e-6);
  ASSERT_EQ(findings[0].suggestions.size(), 1u);
  const Suggestion& s = findings[0].suggestions[0];
  EXPECT_EQ(s.patch, nlohmann::ordered_json::parse(R"({"zero_optimization":{"reshard_after_forward":false}})"));
  EXPECT_NEAR(s.predicted.step_ms, 6.0 - 1.0, 1e-6);
  // All 8 layers and the embedding stay gathered in fp32, instead of the unit in use and the two layers ahead of it. A
  // layer: query, key, value, output 4 h², SwiGLU 12 h², two norms.
  double more = 0;
  ASSERT_EQ(std::sscanf(s.risk.c_str(), "Takes %lf MiB more", &more), 1) << s.risk;
  EXPECT_NEAR(more, 4 * (5 * (16 * 64 * 64 + 2 * 64) + 512 * 64) / 1048576.0, 0.05);
}

TEST(RedundantAllgather, LeavesNeededGathersAlone) {
  EXPECT_TRUE(findings_of({.used_share = 1.0}).empty());
  EXPECT_TRUE(findings_of({.mark_uses = false}).empty());
}

TEST(RedundantAllgather, OneMemberThatNeedsItIsEnough) {
  TraceBuilder trace;
  write(trace, {.mark_uses = false});
  for (int step = 0; step < 6; ++step) {
    for (int i = 0; i < 4; ++i) {
      trace.tensor_use(0, 1 + i, 1 + step, 4096, 8192, 1);
      trace.tensor_use(1, 1 + i, 1 + step, 8192, 8192, 1);
    }
  }
  EXPECT_TRUE(analyzer::analyze(trace.load()).findings.empty());
}

TEST(RedundantAllgather, HiddenGathersCostNothing) {
  TraceBuilder trace;
  for (int r = 0; r < 2; ++r) {
    trace.rank(r, 0, r);
    for (int step = 0; step < 6; ++step) {
      const double begin = 1000.0 * step;
      trace.step(r, step, begin, begin + 1000);
      trace.microbatch(r, step, 0, 0, 'F', begin, begin + 1000);
      trace.collective(r, {.op = "all_gather",
                           .seq = step,
                           .issue = begin + 100,
                           .end = begin + 600,
                           .tensor_id = 1,
                           .tensor_version = 1 + step});
      trace.tensor_use(r, 1, 1 + step, 2048, 4096, begin + 700);
    }
  }
  EXPECT_TRUE(analyzer::analyze(trace.load()).findings.empty());
}

}  // namespace
}  // namespace taut::detect
