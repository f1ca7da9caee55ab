// Every command that opens a trace, given files that are none: one clear error with a hint, exit 1, nothing written.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cli/run_taut.h"
#include "tests/cli/synthetic_run.h"

namespace taut::tests {
namespace {

class BadTrace : public testing::TestWithParam<const char*> {
 protected:
  BadTrace() {
    write_trace({}, folder_ / "good.db");
    const std::string good = read_text(folder_ / "good.db");
    std::filesystem::create_directories(folder_ / "folder");
    write_text(folder_ / "empty", "");
    write_text(folder_ / "text", "this is a letter, not a trace\n");
    write_text(folder_ / "truncated", good.substr(0, good.size() / 2));
    write_text(folder_ / "header_only", good.substr(0, 100));
    write_text(folder_ / "foreign",
               std::string("SQLite format 3\0", 16) + std::string(4080, '\0'));  // damaged beyond the magic
    write_text(folder_ / "config.json", R"({"data":{"mock":true}})");
  }

  void expect_one_error(const std::vector<std::string>& command) {
    const Outcome outcome = run_taut(command);
    EXPECT_EQ(outcome.exit_code, 1) << command[0] << " " << GetParam() << "\n" << outcome.out << outcome.err;
    EXPECT_EQ(outcome.err.rfind("error: ", 0), 0u) << outcome.err;
    EXPECT_NE(outcome.err.find("hint: "), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find(GetParam()), std::string::npos) << "the file is named: " << outcome.err;
    EXPECT_TRUE(outcome.out.empty()) << outcome.out;
  }

  TemporaryFolder folder_{"cli-bad"};
};

TEST_P(BadTrace, IsOneClearErrorInEveryCommand) {
  const std::string bad = folder_ / GetParam(), out = folder_ / "out";
  expect_one_error({"info", bad});
  expect_one_error({"stats", bad});
  expect_one_error({"analyze", bad, "-o", out});
  expect_one_error({"apply", bad, "--config", folder_ / "config.json", "-o", out});
  if (std::string(GetParam()) != "folder") expect_one_error({"compare", folder_ / "good.db", bad});
  expect_one_error({"query", bad, "SELECT 1"});
  EXPECT_FALSE(std::filesystem::exists(out));
}

INSTANTIATE_TEST_SUITE_P(Files, BadTrace,
                         testing::Values("missing", "folder", "empty", "text", "truncated", "header_only", "foreign"));

TEST(BadOutput, LeavesNothingBehind) {
  const TemporaryFolder folder("cli-out");
  write_trace({}, folder / "run.db");
  const Outcome missing = run_taut({"analyze", folder / "run.db", "-o", folder / "no/such/report.html"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_NE(missing.err.find("does not exist"), std::string::npos) << missing.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "no"));
  const Outcome taken = run_taut({"analyze", folder / "run.db", "-o", folder.path().string()});
  EXPECT_EQ(taken.exit_code, 1);
  EXPECT_NE(taken.err.find("folder"), std::string::npos) << taken.err;
}

// A file size limit stands in for the disk that fills up in the middle of a file.
TEST(BadOutput, ADiskThatFillsUpLeavesNothingBehind) {
  const TemporaryFolder folder("cli-limit");
  SyntheticRun run;
  run.ranks = 16;  // for a report of many kilobytes
  write_trace(run, folder / "run.db");
  std::filesystem::create_directories(folder / "out");
  write_text(folder / "train.json", R"({"world_size":2,"train_micro_batch_size_per_gpu":4,"data":{"path":")" +
                                        std::string(5000, 'x') + R"("}})");
  for (const std::string command :
       {"analyze run.db -o out/report.html", "apply run.db --config train.json -o out/tuned.json"}) {
    const Outcome outcome = run_shell("cd '" + folder.path().string() + "' && ulimit -f 1 && \"$TAUT\" " + command);
    EXPECT_EQ(outcome.exit_code, 1) << command << "\n" << outcome.err;
    EXPECT_EQ(outcome.err.rfind("error: ", 0), 0u) << outcome.err;
    EXPECT_TRUE(std::filesystem::is_empty(folder / "out")) << command;
  }
}

TEST(BadOutput, AFullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const TemporaryFolder folder("cli-full");
  write_trace({}, folder / "run.db");
  for (const char* const command : {"info", "stats", "analyze"}) {
    const Outcome outcome =
        run_shell(std::string("\"$TAUT\" ") + command + " '" + (folder / "run.db") + "' >/dev/full");
    EXPECT_EQ(outcome.exit_code, 1) << command;
    EXPECT_NE(outcome.err.find("full"), std::string::npos) << command << ": " << outcome.err;
  }
}

TEST(BadOutput, AReaderThatHasGoneIsNoError) {
  const TemporaryFolder folder("cli-pipe");
  write_trace({}, folder / "run.db");
  for (const char* const command : {"info", "stats", "analyze"}) {
    const Outcome outcome =
        run_shell(std::string("{ \"$TAUT\" ") + command + " '" + (folder / "run.db") + "'; echo $? >&2; } | true");
    EXPECT_EQ(outcome.err, "0\n") << command;
  }
}

TEST(Usage, NamesWhatIsMissing) {
  for (const char* const command : {"info", "stats", "analyze", "apply", "compare", "query"}) {
    const Outcome none = run_taut({command});
    EXPECT_EQ(none.exit_code, 2) << command << none.err;
    EXPECT_EQ(none.err.rfind("error: ", 0), 0u) << none.err;
    const Outcome unknown = run_taut({command, "x.db", "y.db", "--colour"});
    EXPECT_EQ(unknown.exit_code, 2) << command;
    const Outcome help = run_taut({command, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_NE(help.out.find("--format"), std::string::npos) << help.out;
  }
}

}  // namespace
}  // namespace taut::tests
