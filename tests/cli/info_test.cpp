#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run_taut.h"
#include "tests/cli/synthetic_run.h"

namespace taut::tests {
namespace {

TEST(Info, SaysWhatIsInATrace) {
  const TemporaryFolder folder("cli-info");
  SyntheticRun run;
  run.ranks = 3;
  run.steps = 5;
  run.first_step = 10;
  run.dropped = 42;
  run.config = R"({"seed":1})";
  write_trace(run, folder / "run.db");
  const Outcome outcome = run_taut({"info", folder / "run.db", "--format", "json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto info = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(info["format"], "taut");
  EXPECT_EQ(info["live"], false);
  EXPECT_EQ(info["mesh"]["dp"], 3);
  EXPECT_EQ(info["steps"], nlohmann::json({{"count", 5}, {"first", 10}, {"last", 14}}));
  EXPECT_EQ(info["dropped_events"], 42);
  EXPECT_EQ(info["has_config"], true);
  EXPECT_NEAR(info["duration_s"].get<double>(), 0.25, 0.002);
  ASSERT_EQ(info["ranks"].size(), 3u);
  EXPECT_EQ(info["ranks"][2]["pid"], 1002);
  EXPECT_EQ(info["ranks"][2]["steps"], 5);
  EXPECT_EQ(info["groups"], nlohmann::json::parse(R"([{"name":"world","size":3}])"));
  int64_t step_rows = 0;
  for (const auto& table : info["tables"]) {
    if (table["name"] == "TAUT_STEP") step_rows = table["rows"];
  }
  EXPECT_EQ(step_rows, 15);
  const Outcome text = run_taut({"info", folder / "run.db"});
  for (const char* const words : {"Taut trace", "dp 3", "5 (10 to 14)", "TAUT_STEP", "42", "world (3)"}) {
    EXPECT_NE(text.out.find(words), std::string::npos) << words << " in:\n" << text.out;
  }
}

TEST(Info, FollowEndsWithTheRun) {
  const TemporaryFolder folder("cli-follow");
  write_trace({}, folder / "run.db");
  const Outcome outcome = run_taut({"info", folder / "run.db", "--follow"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("steps 12"), std::string::npos) << outcome.out;
}

TEST(Info, KeepsTheTerminalSafeFromNamesInTheTrace) {
  const TemporaryFolder folder("cli-escape");
  SyntheticRun run;
  run.group_name = "evil\x1b[2J";
  write_trace(run, folder / "run.db");
  EXPECT_EQ(run_taut({"info", folder / "run.db"}).out.find('\x1b'), std::string::npos);
  EXPECT_EQ(run_taut({"query", folder / "run.db", "SELECT name FROM TAUT_GROUP"}).out.find('\x1b'), std::string::npos);
}

TEST(NsysExports, AreOpenedAsTheyAre) {
  const std::filesystem::path traces = TAUT_SOURCE_DIR "/../shared/traces/nsys";
  if (!std::filesystem::exists(traces)) GTEST_SKIP() << "no sample exports at " << traces;
  for (const char* const name : {"healthy_1pct.sqlite", "mfu_2gpu_before.sqlite", "mock.sqlite"}) {
    const std::string file = (traces / name).string();
    const Outcome info = run_taut({"info", file, "--format", "json"});
    ASSERT_EQ(info.exit_code, 0) << info.err;
    EXPECT_EQ(nlohmann::json::parse(info.out)["format"], "nsys");
    for (const char* const by : {"name", "kind", "lane", "device"}) {
      EXPECT_EQ(run_taut({"stats", file, "--by", by}).exit_code, 0) << name << " by " << by;
    }
    const Outcome findings = run_taut({"analyze", file, "--format", "json"});
    ASSERT_EQ(findings.exit_code, 0) << findings.err;
    if (std::string(name) == "healthy_1pct.sqlite") {
      const auto report = nlohmann::json::parse(findings.out);
      for (const auto& finding : report["findings"]) EXPECT_EQ(finding["severity"], "low");
    }
  }
}

}  // namespace
}  // namespace taut::tests
