// The loader-stall rule on runs written out by hand: two data-parallel ranks, one batch a step.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "analyzer/analyzer.h"
#include "tests/analyzer/trace_builder.h"
#include "tracer/store/reader.h"

namespace taut::detect {
namespace {

using test::TraceBuilder;

struct Run {
  double think_us = 10'000;  // training per step
  double read_us = 0, tokenize_us = 100, hand_over_us = 50;
  int workers = 1, prefetch = 2, cores = 8, steps = 12;
  bool shared_memory = true;
  double slow_every_eighth_us = 0;  // added to each eighth batch's read
  double first_step_stall_us = 0;
  double read_latency_ms = 0;
};

nlohmann::json config_of(const Run& run) {
  return {
      {"model",
       {{"hidden_size", 64}, {"num_layers", 2}, {"num_attention_heads", 2}, {"seq_length", 64}, {"vocab_size", 512}}},
      {"data",
       {{"path", "/data"},
        {"num_workers", run.workers},
        {"prefetch_factor", run.prefetch},
        {"shared_memory", run.shared_memory},
        {"read_latency_ms", run.read_latency_ms}}},
      {"world_size", 2},
      {"train_batch_size", 16},
      {"train_micro_batch_size_per_gpu", 8}};
}

// What the runtime would do: worker j prepares batches j, j+w, … up to prefetch ahead; the trainer takes them in order.
void write(TraceBuilder& trace, const Run& run) {
  trace.config(config_of(run));
  trace.cores(run.cores);
  for (int r = 0; r < 2; ++r) {
    trace.rank(r, r);
    std::vector<double> finished, taken;
    double now = 0;
    for (int b = 0; b < run.steps; ++b) {
      const double begin = now;
      const double read =
          run.read_us + (b % 8 == 7 ? run.slow_every_eighth_us : 0) + (b == 0 ? run.first_step_stall_us : 0);
      double start = now;
      if (run.workers > 0) {
        start = b >= run.workers ? finished[b - run.workers] : 0;
        const int slots = run.workers * run.prefetch;
        if (b >= slots) start = std::max(start, taken[b - slots]);
      }
      const int worker = run.workers > 0 ? b % run.workers : -1;
      double at = start;
      trace.work(r, worker, b, "read", at, at + read);
      at += read;
      trace.work(r, worker, b, "tokenize", at, at + run.tokenize_us);
      at += run.tokenize_us;
      if (run.workers > 0) {
        trace.work(r, worker, b, "hand_over", at, at + run.hand_over_us);
        at += run.hand_over_us;
      }
      finished.push_back(at);
      const double got = std::max(now, at);
      const auto ready = std::count_if(finished.begin(), finished.end(), [&](double f) { return f <= begin; });
      trace.batch(r, b, begin, got, run.workers, static_cast<int>(ready) - b);
      taken.push_back(got);
      trace.microbatch(r, b, 0, 0, 'F', got, got + run.think_us);
      now = got + run.think_us;
      trace.step(r, b, begin, now);
    }
  }
}

std::vector<Finding> findings_of(const Run& run) {
  TraceBuilder trace;
  write(trace, run);
  return analyzer::analyze(trace.load()).findings;
}

TEST(LoaderStall, SuggestsTheWorkersThatTheLatencyNeeds) {
  // One worker takes 45 ms a batch, the trainer 10 ms: 5 workers (9 ms a batch) are the fewest that keep up.
  const auto findings = findings_of({.read_us = 44'850});
  ASSERT_EQ(findings.size(), 1u);
  const Finding& f = findings[0];
  EXPECT_EQ(f.id, "loader-stall#1");
  EXPECT_EQ(f.severity, Severity::high);
  EXPECT_NEAR(f.cost_share, 35.0 / 45, 0.02);
  EXPECT_EQ(f.ranks, (std::vector<int32_t>{0, 1}));
  ASSERT_GE(f.suggestions.size(), 1u);
  EXPECT_EQ(f.suggestions[0].id, "loader-stall#1.a");
  EXPECT_EQ(f.suggestions[0].patch["data"]["num_workers"], 5);
  EXPECT_FALSE(f.suggestions[0].patch["data"].contains("prefetch_factor"));
  EXPECT_NEAR(f.suggestions[0].predicted.step_ms, 10, 0.5);
  EXPECT_LE(f.suggestions[0].predicted.low, f.suggestions[0].predicted.step_ms);
  EXPECT_GE(f.suggestions[0].predicted.high, f.suggestions[0].predicted.step_ms);
  EXPECT_NEAR(f.suggestions[0].predicted.speedup, 4.5, 0.3);
  EXPECT_TRUE(f.suggestions[0].risk.empty());
  EXPECT_NE(f.explanation.find("reading"), std::string::npos);
}

TEST(LoaderStall, OffersToPreloadWhereReadsAreSlow) {
  const auto findings = findings_of({.read_us = 44'850});
  ASSERT_EQ(findings.at(0).suggestions.size(), 2u);
  EXPECT_EQ(findings[0].suggestions[1].patch["data"]["preload"], true);
  EXPECT_FALSE(findings[0].suggestions[1].risk.empty());
}

TEST(LoaderStall, EvidenceExistsInTheFile) {
  TraceBuilder trace;
  write(trace, {.read_us = 30'000});
  const auto timeline = trace.load();
  const auto findings = analyzer::analyze(timeline).findings;
  ASSERT_FALSE(findings.at(0).evidence.empty());
  const store::Reader reader(trace.path());
  for (const Evidence& e : findings[0].evidence) {
    const auto rows = reader.query("SELECT rank FROM " + e.table + " WHERE rowid = " + std::to_string(e.rowid)).rows;
    ASSERT_EQ(rows.size(), 1u) << e.table << " " << e.rowid;
    EXPECT_EQ(rows[0][0].integer, e.rank);
    EXPECT_LT(e.start, e.end);
  }
}

TEST(LoaderStall, NamesInlineLoading) {
  const auto findings = findings_of({.tokenize_us = 5'000, .workers = 0});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].suggestions.at(0).patch["data"]["num_workers"], 1);
  EXPECT_NE(findings[0].explanation.find("itself"), std::string::npos);
  EXPECT_NEAR(findings[0].suggestions[0].predicted.step_ms, 10, 0.5);
}

TEST(LoaderStall, ProcessorWorkIsBoundedByCores) {
  // 4 cores, 2 ranks that train 10 ms and tokenize 20 ms a step: (2 × 10 + 2 × 20) / 4 = 15 ms is the least.
  const auto findings = findings_of({.tokenize_us = 20'000, .workers = 0, .cores = 4});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].suggestions.at(0).patch["data"]["num_workers"], 2);
  EXPECT_NEAR(findings[0].suggestions[0].predicted.step_ms, 15, 0.7);
  EXPECT_NE(findings[0].explanation.find("tokenizing"), std::string::npos);
}

TEST(LoaderStall, PromisesNothingWhereTheCoresAreTheLimit) {
  // 40 ms of tokenizing a batch on 2 cores that also train: more workers would have no core to run on.
  const auto findings = findings_of({.tokenize_us = 40'000, .cores = 2});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].severity, Severity::low);
  EXPECT_TRUE(findings[0].suggestions.empty());
  EXPECT_NE(findings[0].explanation.find("cores are all busy"), std::string::npos);
}

TEST(LoaderStall, ReplacesASlowPipe) {
  const auto findings = findings_of({.tokenize_us = 500, .hand_over_us = 14'500, .shared_memory = false});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].suggestions.at(0).patch["data"]["shared_memory"], true);
  EXPECT_FALSE(findings[0].suggestions[0].patch["data"].contains("num_workers"));
  EXPECT_NE(findings[0].explanation.find("handing over"), std::string::npos);
}

TEST(LoaderStall, DeepensTheQueueWhereOnlySomeBatchesAreSlow) {
  // Mean 4.15 + 28 / 8 = 7.65 ms < 10 ms, but every eighth batch takes 32 ms and two are prepared ahead.
  const auto findings = findings_of({.read_us = 4'000, .prefetch = 1, .steps = 41, .slow_every_eighth_us = 28'000});
  ASSERT_EQ(findings.size(), 1u);
  const auto& patch = findings[0].suggestions.at(0).patch["data"];
  EXPECT_FALSE(patch.contains("num_workers"));
  EXPECT_GT(patch["prefetch_factor"], 1);
  EXPECT_NE(findings[0].explanation.find("too shallow"), std::string::npos);
}

TEST(LoaderStall, SaysNothingAboutAHealthyRun) {
  EXPECT_TRUE(findings_of({.read_us = 5'000}).empty());
  EXPECT_TRUE(findings_of({.read_us = 17'000, .workers = 2}).empty());
}

TEST(LoaderStall, SaysNothingAboutAStallAtTheStart) {
  EXPECT_TRUE(findings_of({.read_us = 5'000, .first_step_stall_us = 300'000}).empty());
}

TEST(LoaderStall, WorksWithoutTheLoadersOwnMarks) {
  // Only the waits: one worker delivers every 40 ms, the trainer needs 10.
  TraceBuilder trace;
  for (int r = 0; r < 2; ++r) {
    trace.rank(r, r);
    for (int s = 0; s < 10; ++s) {
      trace.step(r, s, 40'000.0 * s, 40'000.0 * (s + 1));
      trace.batch(r, s, 40'000.0 * s, 40'000.0 * s + 30'000, 1, 0);
      trace.microbatch(r, s, 0, 0, 'F', 40'000.0 * s + 30'000, 40'000.0 * (s + 1));
    }
  }
  const auto findings = analyzer::analyze(trace.load()).findings;
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].suggestions.at(0).patch["data"]["num_workers"], 4);
  EXPECT_NEAR(findings[0].suggestions[0].predicted.step_ms, 10, 0.5);
}

}  // namespace
}  // namespace taut::detect
