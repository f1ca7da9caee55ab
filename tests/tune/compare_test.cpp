#include "analyzer/tune/compare.h"

#include <gtest/gtest.h>

#include "analyzer/report/comparison.h"
#include "taut.h"
#include "tests/cli/synthetic_run.h"

namespace taut::tune {
namespace {

using tests::SyntheticRun;
using tests::TemporaryFolder;

/// Reproducible noise of about ±1 % that differs from step to step and run to run.
double jitter(int64_t step, int64_t run) {
  return 1 + 0.01 * double((step * 7919 + run * 104729) % 13 - 6) / 6;
}

SyntheticRun run_with(double wait_ms, double compute_ms, int64_t run) {
  SyntheticRun out;
  out.steps = 16;
  out.wait_ms = [=](int64_t step, int) { return wait_ms * jitter(step, run); };
  out.compute_ms = [=](int64_t step, int) { return compute_ms * jitter(step + 3, run); };
  return out;
}

class Compare : public testing::Test {
 protected:
  Side side(const SyntheticRun& run, const std::string& name) {
    tests::write_trace(run, folder_ / name);
    return read_side(folder_ / name);
  }

  TemporaryFolder folder_{"compare"};
};

TEST_F(Compare, SaysWhatGotFasterAndByHowMuch) {
  const auto result = compare(side(run_with(50, 50, 1), "a.db"), side(run_with(2, 50, 2), "b.db"));
  EXPECT_EQ(result.judgement.verdict, Verdict::faster);
  EXPECT_NEAR(result.judgement.speedup, 100.0 / 52, 0.04);
  double change = 0;
  for (const auto& category : result.categories) {
    change += category.b_ms - category.a_ms;
    if (category.category == metrics::Category::loader_stall) {
      EXPECT_NEAR(category.a_ms, 50, 1);
      EXPECT_NEAR(category.b_ms, 2, 0.1);
    }
  }
  EXPECT_NEAR(change, -48, 1) << "the categories explain the whole difference";
  EXPECT_EQ(result.a.steps, 15) << "the first step warms up";
  EXPECT_NEAR(result.a.loader_stall_share, 0.5, 0.01);
  const std::string text = report::comparison_text(result, false);
  for (const char* const words :
       {"step time", "tokens/s", "utilization", "loader stall", "pipeline bubble", "communication share", "before",
        "B is faster", "Most of it is loader stall", "Losses: the same"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << " in:\n" << text;
  }
}

TEST_F(Compare, CallsTheSameRunTwiceNoChange) {
  const auto result = compare(side(run_with(5, 50, 1), "a.db"), side(run_with(5, 50, 2), "b.db"));
  EXPECT_EQ(result.judgement.verdict, Verdict::no_change);
  EXPECT_NE(report::comparison_text(result, false).find("No real change"), std::string::npos);
}

TEST_F(Compare, MatchesStepsByNumber) {
  SyntheticRun a = run_with(0, 50, 1), b = run_with(0, 50, 2);
  b.first_step = 4;
  const auto result = compare(side(a, "a.db"), side(b, "b.db"));
  EXPECT_TRUE(result.judgement.paired);
  EXPECT_EQ(result.a.steps, 12) << "4 to 15: B begins with 4, A ends with 15";
  EXPECT_EQ(result.b.steps, 12);
}

TEST_F(Compare, SeesDifferentLosses) {
  SyntheticRun a = run_with(0, 50, 1), b = run_with(0, 50, 2);
  b.loss = [loss = a.loss](int64_t step) { return loss(step) + (step == 9 ? 0.25 : 1e-6); };
  const auto result = compare(side(a, "a.db"), side(b, "b.db"));
  ASSERT_TRUE(result.losses_equal.has_value());
  EXPECT_FALSE(*result.losses_equal);
  EXPECT_NEAR(*result.max_loss_diff, 0.25, 1e-12);
  EXPECT_EQ(result.losses_compared, 16);
}

TEST_F(Compare, WarnsWhereRunsAreNotComparable) {
  SyntheticRun a = run_with(0, 50, 1), b = run_with(0, 50, 2);
  a.config = R"({"model":{"hidden_size":64},"bf16":{"enabled":false}})";
  b.config = R"({"model":{"hidden_size":128},"bf16":{"enabled":false}})";
  b.ranks = 3;
  b.dropped = 5;
  std::string all;
  for (const auto& warning : compare(side(a, "a.db"), side(b, "b.db")).warnings) all += warning + "\n";
  for (const char* const words :
       {"ranks differs: 2 against 3", "8192 tokens in A and 12288 in B", "\"model\"", "B lost 5 events"}) {
    EXPECT_NE(all.find(words), std::string::npos) << words << " in:\n" << all;
  }
}

TEST_F(Compare, JudgesSetsOfRuns) {
  for (int run = 0; run < 3; ++run) {
    for (const auto& [name, wait] : {std::pair{"a", 50.0}, std::pair{"b", 10.0}}) {
      std::filesystem::create_directories(folder_ / name);
      tests::write_trace(run_with(wait, 50, run), folder_ / (std::string(name) + "/" + std::to_string(run) + ".db"));
    }
  }
  const auto result = compare(read_side(folder_ / "a"), read_side(folder_ / "b"));
  EXPECT_EQ(result.judgement.verdict, Verdict::faster);
  EXPECT_EQ(result.a.runs, 3);
  EXPECT_EQ(result.a.steps, 45);
  std::filesystem::create_directories(folder_ / "empty");
  EXPECT_THROW(read_side(folder_ / "empty"), Error);
}

TEST_F(Compare, GivesJsonWithFiniteNumbersOnly) {
  const auto json =
      report::comparison_json(compare(side(run_with(50, 50, 1), "a.db"), side(run_with(2, 50, 2), "b.db")));
  for (const char* const key : {"a", "b", "speedup", "ci", "verdict", "categories", "losses_equal", "max_loss_diff"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["verdict"], "faster");
  EXPECT_EQ(json["categories"].size(), metrics::kCategories);
  EXPECT_LT(json["ci"][0], json["ci"][1]);
  EXPECT_EQ(json["losses_equal"], true);
  EXPECT_NEAR(json["a"]["step_ms"].get<double>() / json["b"]["step_ms"].get<double>(), json["speedup"].get<double>(),
              1e-9);
}

/// An analysis as `taut analyze` would give it for A, with one finding of each kind.
analyzer::Analysis analysis_with(std::vector<std::pair<std::string, nlohmann::json>> patches, double step_ms,
                                 double predicted) {
  analyzer::Analysis out;
  out.summary.step_ms = step_ms;
  for (const auto& [id, patch] : patches) {
    detect::Finding finding;
    finding.id = id;
    detect::Suggestion suggestion;
    suggestion.id = id + ".a";
    suggestion.patch = patch;
    suggestion.predicted = {predicted, predicted - 5, predicted + 5, step_ms / predicted};
    finding.suggestions.push_back(suggestion);
    out.findings.push_back(finding);
  }
  return out;
}

Run made_run(const analyzer::Analysis& analysis, const std::string& config, double step_ms) {
  Run run;
  run.analysis = analysis;
  run.config = config::Json::parse(config);
  for (int64_t step = 1; step < 20; ++step) run.step_ms[step] = step_ms + 0.01 * double(step);
  return run;
}

TEST(PredictionCheck, SetsThePromiseOfFollowedSuggestionsAgainstTheOutcome) {
  const auto before = analysis_with({{"x#1", {{"data", {{"num_workers", 4}}}}}, {"y#1", {{"seed", 9}}}}, 100, 60);
  const auto a = made_run(before, R"({"data":{"num_workers":0},"seed":1,"train_steps":5})", 100);
  const auto b = made_run({}, R"({"data":{"num_workers":4},"seed":1,"train_steps":9,"gradient_clipping":2.0})", 62);
  const auto result = compare({a}, {b});
  ASSERT_TRUE(result.prediction.has_value());
  EXPECT_EQ(result.prediction->suggestions, std::vector<std::string>{"x#1.a"});
  EXPECT_DOUBLE_EQ(result.prediction->step_ms, 60);
  EXPECT_DOUBLE_EQ(result.prediction->low, 55);
  EXPECT_DOUBLE_EQ(result.prediction->measured_step_ms, result.b.step_ms);
  EXPECT_EQ(result.prediction->other_changes, std::vector<std::string>{"gradient_clipping"});
}

TEST(PredictionCheck, AddsTheGainsOfSeveralFindings) {
  const auto before = analysis_with({{"x#1", {{"data", {{"num_workers", 4}}}}}, {"y#1", {{"seed", 9}}}}, 100, 70);
  const auto result = compare({made_run(before, R"({"data":{"num_workers":0},"seed":1})", 100)},
                              {made_run({}, R"({"data":{"num_workers":4},"seed":9})", 45)});
  ASSERT_TRUE(result.prediction.has_value());
  EXPECT_DOUBLE_EQ(result.prediction->step_ms, 40);  // 100 - 30 - 30
}

TEST(PredictionCheck, IsSilentWhenNothingWasFollowed) {
  const auto before = analysis_with({{"x#1", {{"data", {{"num_workers", 4}}}}}}, 100, 60);
  EXPECT_FALSE(compare({made_run(before, R"({"data":{"num_workers":0}})", 100)},
                       {made_run({}, R"({"data":{"num_workers":2}})", 80)})
                   .prediction.has_value());
}

}  // namespace
}  // namespace taut::tune
