#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run_taut.h"
#include "tests/cli/synthetic_run.h"

namespace taut::tests {
namespace {

using nlohmann::json;

class Stats : public testing::Test {
 protected:
  Stats() {
    SyntheticRun run;
    run.ranks = 1;
    run.steps = 10;
    run.wait_ms = [](int64_t step, int) { return double(step + 1); };  // 1 to 10 ms
    run.read_share = 0.5;
    write_trace(run, folder_ / "run.db");
  }

  json stats(std::vector<std::string> args) {
    args.insert(args.begin(), {"stats", folder_ / "run.db", "--format", "json"});
    const Outcome outcome = run_taut(args);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return json::parse(outcome.out);
  }

  static json row(const json& stats, const std::string& name) {
    for (const auto& row : stats["rows"]) {
      if (row["name"] == name) return row;
    }
    ADD_FAILURE() << "no row " << name;
    return {};
  }

  TemporaryFolder folder_{"cli-stats"};
};

TEST_F(Stats, CountsTotalSelfMeanAndPercentiles) {
  const json wait = row(stats({}), "batch_wait");
  EXPECT_EQ(wait["count"], 10);
  EXPECT_EQ(wait["total_ns"], 55'000'000);
  EXPECT_EQ(wait["self_ns"], 27'500'000) << "half of each wait is the read inside it";
  EXPECT_EQ(wait["mean_ns"], 5'500'000.0);
  EXPECT_EQ(wait["p50_ns"], 5'000'000);
  EXPECT_EQ(wait["p95_ns"], 10'000'000);
  EXPECT_EQ(wait["kind"], "loader");
}

TEST_F(Stats, SharesOfAllRowsAddUpToOne) {
  for (const char* const by : {"name", "kind", "lane"}) {
    double sum = 0;
    const json result = stats({"--by", by});
    for (const auto& row : result["rows"]) sum += row["share"].get<double>();
    EXPECT_NEAR(sum, 1, 1e-9) << by;
  }
}

TEST_F(Stats, SortsAndLimits) {
  const json by_total = stats({"--sort", "total"});
  EXPECT_EQ(by_total["rows"][0]["name"], "step");
  const json by_mean = stats({"--sort", "mean", "--limit", "2"});
  ASSERT_EQ(by_mean["rows"].size(), 2u);
  EXPECT_GE(by_mean["rows"][0]["mean_ns"], by_mean["rows"][1]["mean_ns"]);
  EXPECT_EQ(by_mean["rows_in_all"], by_total["rows"].size());
  const Outcome text = run_taut({"stats", folder_ / "run.db", "--limit", "1"});
  EXPECT_NE(text.out.find("more rows"), std::string::npos) << text.out;
}

TEST_F(Stats, HasNoDevicesWithoutGpuWork) {
  EXPECT_EQ(stats({"--by", "device"}), json::parse(R"({"devices":[]})"));
}

TEST_F(Stats, RefusesWrongUsage) {
  for (const auto& args : std::vector<std::vector<std::string>>{
           {"--by", "colour"}, {"--sort", "up"}, {"--limit", "-1"}, {"--limit", "x"}}) {
    EXPECT_EQ(run_taut({"stats", folder_ / "run.db", args[0], args[1]}).exit_code, 2) << args[0] << " " << args[1];
  }
}

}  // namespace
}  // namespace taut::tests
