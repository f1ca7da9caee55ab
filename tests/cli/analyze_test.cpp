#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run_taut.h"
#include "tests/cli/synthetic_run.h"

namespace taut::tests {
namespace {

class Analyze : public testing::Test {
 protected:
  Analyze() {
    SyntheticRun stalled;
    stalled.wait_ms = [](int64_t step, int) { return 50.0 + double(step % 3); };
    write_trace(stalled, folder_ / "stalled.db");
    write_trace({}, folder_ / "healthy.db");
  }

  TemporaryFolder folder_{"cli-analyze"};
};

TEST_F(Analyze, PrintsAReportForPeople) {
  const Outcome outcome = run_taut({"analyze", folder_ / "stalled.db"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* const words :
       {"2 ranks, 11 of 12 steps analysed", "[high]", "loader-stall#1", "of every step", "Evidence:"}) {
    EXPECT_NE(outcome.out.find(words), std::string::npos) << words << " in:\n" << outcome.out;
  }
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos) << "no colour into a pipe";
}

TEST_F(Analyze, GivesJsonForTheStepsAndRankAskedFor) {
  const Outcome outcome =
      run_taut({"analyze", folder_ / "stalled.db", "--format", "json", "--steps", "2:6", "--rank", "1"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto report = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(report["trace"]["steps"], 4);
  ASSERT_EQ(report["ranks"].size(), 1u);
  EXPECT_EQ(report["ranks"][0]["rank"], 1);
}

TEST_F(Analyze, UnderstandsOpenRanges) {
  for (const auto& [range, steps] : {std::pair{"0:", 12}, std::pair{":3", 3}, std::pair{"10:", 2}}) {
    const Outcome outcome =
        run_taut({"analyze", folder_ / "stalled.db", "--format=json", std::string("--steps=") + range});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(nlohmann::json::parse(outcome.out)["trace"]["steps"], steps) << range;
  }
}

TEST_F(Analyze, WritesTheFormatThatTheFileNameSays) {
  for (const auto& [name, begin] :
       {std::pair{"r.html", "<!DOCTYPE html>"}, std::pair{"r.md", "# "}, std::pair{"r.json", "{"}}) {
    const Outcome outcome = run_taut({"analyze", folder_ / "stalled.db", "-o", folder_ / name});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(read_text(folder_ / name).rfind(begin, 0), 0u) << name;
  }
  run_taut({"analyze", folder_ / "stalled.db", "--format", "md", "-o", folder_ / "odd.html"});
  EXPECT_EQ(read_text(folder_ / "odd.html").rfind("# ", 0), 0u) << "--format goes before the name";
}

TEST_F(Analyze, ExitsWithThreeWhenAGateBreaks) {
  const std::string stalled = folder_ / "stalled.db", healthy = folder_ / "healthy.db";
  EXPECT_EQ(run_taut({"analyze", stalled, "--fail-on", "loader-stall:high"}).exit_code, 3);
  EXPECT_EQ(run_taut({"analyze", stalled, "--fail-on", "loader-stall", "--format", "json"}).exit_code, 3);
  EXPECT_EQ(run_taut({"analyze", stalled, "--fail-on", "any:medium"}).exit_code, 3);
  EXPECT_EQ(run_taut({"analyze", stalled, "--fail-on", "pipeline-bubble", "--fail-on", "straggler:high"}).exit_code, 0);
  EXPECT_EQ(run_taut({"analyze", healthy, "--fail-on", "any:medium"}).exit_code, 0);
  const Outcome broken = run_taut({"analyze", stalled, "--fail-on", "any", "-o", folder_ / "gated.txt"});
  EXPECT_EQ(broken.exit_code, 3);
  EXPECT_NE(broken.err.find("loader-stall#1"), std::string::npos) << broken.err;
  EXPECT_FALSE(read_text(folder_ / "gated.txt").empty()) << "the report is written all the same";
}

TEST_F(Analyze, RefusesWrongUsage) {
  const std::string trace = folder_ / "stalled.db";
  for (const auto& args : std::vector<std::vector<std::string>>{{"--steps", "5:2"},
                                                                {"--steps", "3"},
                                                                {"--steps", ":"},
                                                                {"--steps", "a:b"},
                                                                {"--format", "pdf"},
                                                                {"--fail-on", "loader-stal"},
                                                                {"--fail-on", "loader-stall:huge"},
                                                                {"-o", trace}}) {
    std::vector<std::string> command{"analyze", trace};
    command.insert(command.end(), args.begin(), args.end());
    const Outcome outcome = run_taut(command);
    EXPECT_EQ(outcome.exit_code, 2) << args[0] << " " << args[1] << "\n" << outcome.err;
    EXPECT_EQ(outcome.err.rfind("error: ", 0), 0u) << outcome.err;
    EXPECT_NE(outcome.err.find("hint: "), std::string::npos) << outcome.err;
    EXPECT_TRUE(outcome.out.empty()) << outcome.out;
  }
  EXPECT_EQ(run_taut({"info", trace}).exit_code, 0) << "the trace is still one";
}

TEST_F(Analyze, SaysWhichStepsOrRanksThereAre) {
  const Outcome steps = run_taut({"analyze", folder_ / "stalled.db", "--steps", "100:200"});
  EXPECT_NE(steps.exit_code, 0);
  EXPECT_NE(steps.err.find("error: "), std::string::npos) << steps.err;
  const Outcome rank = run_taut({"analyze", folder_ / "stalled.db", "--rank", "7"});
  EXPECT_NE(rank.exit_code, 0);
  EXPECT_NE(rank.err.find("7"), std::string::npos) << rank.err;
}

}  // namespace
}  // namespace taut::tests
