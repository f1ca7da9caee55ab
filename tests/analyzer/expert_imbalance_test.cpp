// The expert-imbalance rule: loads per expert-parallel rank, what they cost, and which placement evens them out.
#include <gtest/gtest.h>

#include <algorithm>

#include "analyzer/analyzer.h"
#include "tests/analyzer/trace_builder.h"

namespace taut::detect {
namespace {

using test::TraceBuilder;

struct Run {
  std::vector<int64_t> rows{400, 400, 100, 100};  // of each expert in a step's one layer, half from either rank
  int64_t dropped = 0;                            // of expert 0's, by each rank
  int ep = 2;
  bool with_config = false;
  std::vector<std::vector<int64_t>> placement{{0, 1}, {2, 3}};  // as the run had it
};

// Two data-parallel ranks; a step is expert work of 1 µs a row and the all-to-all that ends it, of 50 µs.
void write(TraceBuilder& trace, const Run& run) {
  if (run.with_config) {
    nlohmann::json config = {{"model",
                              {{"hidden_size", 64},
                               {"num_layers", 1},
                               {"num_attention_heads", 2},
                               {"seq_length", 64},
                               {"vocab_size", 512},
                               {"num_experts", 4}}},
                             {"data", {{"path", "/data"}}},
                             {"world_size", 2},
                             {"train_batch_size", 8},
                             {"train_micro_batch_size_per_gpu", 4},
                             {"parallel", {{"expert_parallel_size", run.ep}}}};
    if (run.placement != std::vector<std::vector<int64_t>>{{0, 1}, {2, 3}}) {
      config["parallel"]["expert_placement"] = run.placement;
    }
    trace.config(config);
  }
  std::vector<double> work(2, 500);
  if (run.ep == 2) {
    for (int r = 0; r < 2; ++r) {
      work[r] = 0;
      for (const int64_t expert : run.placement[r]) work[r] += static_cast<double>(run.rows[expert]);
    }
  }
  const double slowest = std::max(work[0], work[1]);
  for (int r = 0; r < 2; ++r) {
    trace.rank(r, r, 0, 0, -1, run.ep == 2 ? r : 0);
    for (int64_t step = 0; step < 6; ++step) {
      const double begin = (slowest + 50) * static_cast<double>(step), end = begin + slowest + 50;
      trace.step(r, step, begin, end);
      trace.microbatch(r, step, 0, 0, 'F', begin, begin + work[r]);
      if (run.ep == 2) {
        trace.collective(r, {.op = "all_to_all",
                             .seq = step,
                             .issue = begin + work[r],
                             .end = end,
                             .wait_start = begin + work[r],
                             .wait_end = end,
                             .is_async = false});
      }
      for (int expert = 0; expert < 4; ++expert) {
        trace.expert(r, step, 0, expert, run.rows[expert] / 2, expert == 0 ? run.dropped : 0, end - 1);
      }
    }
  }
}

std::vector<Finding> findings_of(const Run& run) {
  TraceBuilder trace;
  write(trace, run);
  std::vector<Finding> findings = analyzer::analyze(trace.load()).findings;
  std::erase_if(findings, [](const Finding& f) { return f.rule != "expert-imbalance"; });
  return findings;
}

TEST(ExpertImbalance, CostsWhatTheOthersWaitAndAnotherPlacementMendsIt) {
  // Ranks compute 800 and 200 rows: 0.6 ms of waiting on one of two, the mean of 800 − 500 µs.
  const auto findings = findings_of({});
  ASSERT_EQ(findings.size(), 1u);
  const Finding& finding = findings[0];
  EXPECT_NEAR(finding.cost_ms_per_step, 0.3, 1e-6);
  EXPECT_NEAR(finding.cost_share, 0.3 / 0.85, 1e-6);
  EXPECT_EQ(finding.severity, Severity::high);
  EXPECT_EQ(finding.ranks, (std::vector<int32_t>{0, 1}));
  ASSERT_EQ(finding.suggestions.size(), 2u);
  EXPECT_EQ(finding.suggestions[0].patch,
            nlohmann::ordered_json::parse(R"({"parallel":{"expert_placement":[[0,2],[1,3]]}})"));
  EXPECT_TRUE(finding.suggestions[0].risk.empty()) << "what is learned stays the same";
  EXPECT_NEAR(finding.suggestions[0].predicted.step_ms, 0.55, 1e-6);
  EXPECT_FALSE(finding.suggestions[1].risk.empty());
  ASSERT_FALSE(finding.evidence.empty());
  EXPECT_EQ(finding.evidence[0].table, "TAUT_EXPERT");
}

TEST(ExpertImbalance, FollowsThePlacementOfTheConfig) {
  EXPECT_TRUE(findings_of({.with_config = true, .placement = {{0, 2}, {1, 3}}}).empty());
  const auto findings = findings_of({.with_config = true});
  ASSERT_EQ(findings.size(), 1u);
  // Experts are a part of the model's work, so that the waiting is not all theirs.
  EXPECT_GT(findings[0].cost_ms_per_step, 0.1);
  EXPECT_LE(findings[0].cost_ms_per_step, 0.3);
  EXPECT_EQ(findings[0].suggestions.back().patch.at("model").at("moe_aux_loss_coeff"), 0.02) << "twice what it was";
}

TEST(ExpertImbalance, OneHotExpertNoPlacementCanSplit) {
  const auto findings = findings_of({.rows = {970, 10, 10, 10}});
  ASSERT_EQ(findings.size(), 1u);
  ASSERT_EQ(findings[0].suggestions.size(), 1u) << "no placement helps";
  EXPECT_FALSE(findings[0].suggestions[0].risk.empty());
}

TEST(ExpertImbalance, SpeaksUpWithoutExpertParallelismOnlyWhenExpertsStarveOrTokensDrop) {
  EXPECT_TRUE(findings_of({.ep = 1}).empty());
  const auto drops = findings_of({.dropped = 50, .ep = 1});
  ASSERT_EQ(drops.size(), 1u);
  EXPECT_EQ(drops[0].cost_ms_per_step, 0);
  EXPECT_NE(drops[0].explanation.find("no room"), std::string::npos);
  const auto hot = findings_of({.rows = {970, 10, 10, 10}, .ep = 1});
  ASSERT_EQ(hot.size(), 1u);
  EXPECT_EQ(hot[0].severity, Severity::low);
}

TEST(ExpertImbalance, EvenLoadsAreFine) {
  EXPECT_TRUE(findings_of({.rows = {250, 250, 250, 250}}).empty());
}

TEST(ExpertImbalance, RowsThatMakeNoSenseAreLeftOut) {
  TraceBuilder trace;
  write(trace, {.rows = {250, 250, 250, 250}});
  trace.expert(0, 0, 0, 0, -5, 0, 1);
  trace.expert(0, 0, 0, 0, 5, 6, 1);
  trace.expert(0, 0, 0, 2000000000, 5, 0, 1);
  const auto timeline = trace.load();
  EXPECT_EQ(timeline.quality.rejected_rows, 2);
  EXPECT_TRUE(analyzer::analyze(timeline).findings.empty());
}

}  // namespace
}  // namespace taut::detect
