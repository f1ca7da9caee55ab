#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run_taut.h"
#include "tests/cli/synthetic_run.h"

namespace taut::tests {
namespace {

class CompareCommand : public testing::Test {
 protected:
  CompareCommand() {
    SyntheticRun run;
    run.steps = 16;
    run.wait_ms = [](int64_t step, int) { return 50.0 + 0.1 * double(step % 5); };
    write_trace(run, folder_ / "before.db");
    run.wait_ms = [](int64_t step, int) { return 1.0 + 0.1 * double(step % 4); };
    write_trace(run, folder_ / "after.db");
    write_trace(run, folder_ / "again.db");
  }

  TemporaryFolder folder_{"cli-compare"};
};

TEST_F(CompareCommand, PrintsTheBeforeAndAfterTable) {
  const Outcome outcome = run_taut({"compare", folder_ / "before.db", folder_ / "after.db"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* const row :
       {"step time", "tokens/s", "utilization", "loader stall", "communication share", "B is faster"}) {
    EXPECT_NE(outcome.out.find(row), std::string::npos) << row << " in:\n" << outcome.out;
  }
}

TEST_F(CompareCommand, GivesJson) {
  const Outcome outcome = run_taut({"compare", folder_ / "before.db", folder_ / "after.db", "--format", "json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto result = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(result["verdict"], "faster");
  EXPECT_NEAR(result["speedup"].get<double>(), 100.2 / 51.2, 0.02);
  EXPECT_EQ(result["losses_equal"], true);
  EXPECT_EQ(result["max_loss_diff"], 0.0);
}

TEST_F(CompareCommand, ReportsNoChangeAndSlowerAsResultsNotErrors) {
  const Outcome same = run_taut({"compare", folder_ / "after.db", folder_ / "again.db"});
  EXPECT_EQ(same.exit_code, 0);
  EXPECT_NE(same.out.find("No real change"), std::string::npos) << same.out;
  const Outcome slower = run_taut({"compare", folder_ / "after.db", folder_ / "before.db"});
  EXPECT_EQ(slower.exit_code, 0);
  EXPECT_NE(slower.out.find("B is slower"), std::string::npos) << slower.out;
}

}  // namespace
}  // namespace taut::tests
