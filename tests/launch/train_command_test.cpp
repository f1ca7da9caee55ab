// `taut train` from the outside: what it prints, how it exits. launch_child stands in for taut-worker.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace taut {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kConfig = R"({
  // Small, and needs no data.
  "model": {"hidden_size": 64, "num_layers": 4, "num_attention_heads": 8, "seq_length": 32, "vocab_size": 512},
  "data": {"mock": true}, "train_batch_size": 16, "train_micro_batch_size_per_gpu": 2
})";

struct Outcome {
  int exit_code;
  std::string out, err;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class TrainCommand : public testing::Test {
 protected:
  // taut finds its worker beside itself, so it is copied into a folder where launch_child bears the worker's name.
  static void SetUpTestSuite() {
    std::string name = testing::TempDir() + "/train-XXXXXX";
    dir_ = fs::path(mkdtemp(name.data())).lexically_normal();
    fs::copy(fs::path(TAUT_BIN_DIR) / "taut", dir_ / "taut");
    fs::copy(fs::path(TAUT_BIN_DIR) / "libtaut_inject.so", dir_ / "libtaut_inject.so");
    fs::copy(fs::path(TAUT_BIN_DIR) / "launch_child", dir_ / "taut-worker");
    std::ofstream(dir_ / "run.json") << kConfig;
  }
  static void TearDownTestSuite() { fs::remove_all(dir_); }

  static std::string read(const fs::path& path) {
    std::ifstream in(path);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }

  static Outcome run_taut(const std::string& arguments, const std::string& worker_actions = "exit=0") {
    const std::string command = "cd '" + dir_.string() + "' && LAUNCH_CHILD_ACTIONS='" + worker_actions + "' ./taut " +
                                arguments + " >out 2>err </dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(dir_ / "out"), read(dir_ / "err")};
  }

  static fs::path dir_;
};
fs::path TrainCommand::dir_;

TEST_F(TrainCommand, RunsTheRanksOfTheConfig) {
  EXPECT_EQ(run_taut("train run.json").exit_code, 0);
  EXPECT_EQ(run_taut("train run.json --nproc 2", "touch=" + (dir_ / "rank").string()).exit_code, 0);
  EXPECT_TRUE(contains(read(dir_ / "rank.1"), "WORLD_SIZE=2"));
}

TEST_F(TrainCommand, SaysWhichRankDiedAtWhichStepAndWhy) {
  const Outcome run = run_taut("train run.json --nproc 2", "step=6 1:say=error:_no_room 1:exit=1 wait");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_TRUE(contains(run.err, "\nerror: rank 1 exited with code 1 at step 6")) << run.err;
  EXPECT_TRUE(contains(run.err, "[rank 1] error:_no_room")) << run.err;
  const Outcome killed = run_taut("train run.json --nproc 2", "step=2 0:die wait");
  EXPECT_EQ(killed.exit_code, 1);
  EXPECT_TRUE(contains(killed.err, "error: rank 0 was killed by SIGKILL at step 2; the other ranks were stopped"))
      << killed.err;
}

TEST_F(TrainCommand, RestartsOnlyWithACheckpointFolder) {
  EXPECT_FALSE(contains(run_taut("train run.json", "step=1 die").err, "starting again"));
  const Outcome run =
      run_taut("train run.json --set checkpoint.dir=ckpt --set elastic.max_restarts=2", "step=1 first:die");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(contains(run.err, "killed by SIGKILL at step 1; starting again from the newest checkpoint (1 of 2)"))
      << run.err;
}

TEST_F(TrainCommand, LeavesNothingBehindWhenItIsKilled) {
  const fs::path scratch = dir_ / "scratch", ready = dir_ / "ready.0";
  fs::create_directory(scratch);
  const pid_t taut = fork();
  if (taut == 0) {
    setenv("TMPDIR", scratch.c_str(), 1);
    setenv("LAUNCH_CHILD_ACTIONS", ("step=3 touch=" + (dir_ / "ready").string() + " wait").c_str(), 1);
    execl((dir_ / "taut").c_str(), "taut", "train", (dir_ / "run.json").c_str(), "-q", nullptr);
    _exit(127);
  }
  // The rank says by a file that it runs; looking for it is polling.
  while (!fs::exists(ready) && waitpid(taut, nullptr, WNOHANG) == 0) usleep(1000);
  ASSERT_TRUE(fs::exists(ready));
  kill(taut, SIGKILL);
  waitpid(taut, nullptr, 0);
  EXPECT_TRUE(fs::is_empty(scratch)) << fs::directory_iterator(scratch)->path();
}

TEST_F(TrainCommand, StartsNoRankWithABadConfig) {
  const Outcome run = run_taut("train run.json --set model.hiden_size=3", "touch=" + (dir_ / "started").string());
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(
      run.err,
      "error: run.json: there is no key model.hiden_size (its value is 3)\nhint: did you mean model.hidden_size?\n");
  EXPECT_FALSE(fs::exists(dir_ / "started.0"));
}

TEST_F(TrainCommand, TracesTheRunAndSaysWhere) {
  const Outcome run = run_taut("train run.json --trace run.db");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(contains(run.out, "trace: run.db")) << run.out;
  EXPECT_TRUE(contains(run.out, "taut analyze run.db")) << run.out;
  EXPECT_EQ(read(dir_ / "run.db").substr(0, 15), "SQLite format 3");
  EXPECT_EQ(run_taut("train run.json --trace run.db").exit_code, 0) << "an older trace may be replaced";
}

TEST_F(TrainCommand, KeepsTheTraceOfARunThatDied) {
  const Outcome run = run_taut("train run.json --trace died.db", "step=1 die");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_TRUE(contains(run.err, "taut analyze died.db")) << run.err;
  EXPECT_TRUE(fs::exists(dir_ / "died.db"));
}

TEST_F(TrainCommand, RefusesTracePathsItMustNotWrite) {
  std::ofstream(dir_ / "notes.txt") << "my notes, not a trace";
  const Outcome foreign = run_taut("train run.json --trace notes.txt", "touch=" + (dir_ / "started").string());
  EXPECT_EQ(foreign.exit_code, 1);
  EXPECT_TRUE(contains(foreign.err, "hint: ")) << foreign.err;
  EXPECT_EQ(read(dir_ / "notes.txt"), "my notes, not a trace");
  const Outcome missing = run_taut("train run.json --trace no/such/run.db");
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_TRUE(contains(missing.err, "hint: make it: mkdir -p no/such")) << missing.err;
  EXPECT_EQ(run_taut("train run.json --trace .").exit_code, 1);
  EXPECT_FALSE(fs::exists(dir_ / "started.0"));
}

TEST_F(TrainCommand, PrintsTheEffectiveConfig) {
  const Outcome run = run_taut("train run.json --print-config --steps 7 --nproc 4");
  EXPECT_EQ(run.exit_code, 0);
  const Json json = Json::parse(run.out);
  EXPECT_EQ(json["train_steps"], 7);
  EXPECT_EQ(json["gradient_accumulation_steps"], 16 / 2 / 4);
  EXPECT_EQ(json["model"]["ffn_hidden_size"], 4 * 64);
}

// The worker is asked once, not as a rank, and what it finds decides.
TEST_F(TrainCommand, DryRunShowsTheLayoutAndStartsNoRank) {
  const std::string started = (dir_ / "looked").string();
  const Outcome run = run_taut("train run.json --dry-run --nproc 2 --format json", "print=[1] touch=" + started);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(Json::parse(run.out)["mesh"]["dp"], 2);
  EXPECT_EQ(Json::parse(run.out)["built"], Json::array({1}));
  EXPECT_FALSE(contains(read(started + ".0"), "WORLD_SIZE=2"));
  EXPECT_FALSE(fs::exists(started + ".1"));
  EXPECT_EQ(run_taut("train run.json --dry-run", "exit=1").exit_code, 1);
  const Outcome garbled = run_taut("train run.json --dry-run --format json", "print=oops");
  EXPECT_EQ(garbled.exit_code, 1);
  EXPECT_EQ(garbled.out, "");
  EXPECT_TRUE(contains(garbled.err, "not JSON")) << garbled.err;
}

TEST_F(TrainCommand, WrongUsageIsTwoLinesAndExitCode2) {
  const struct {
    const char *arguments, *error;
  } cases[] = {
      {"", "error: A subcommand is required\nhint: see taut --help\n"},
      {"trian run.json", "error: there is no command trian\nhint: did you mean taut train?\n"},
      {"train", "error: CONFIG is required\nhint: see taut train --help\n"},
      {"train run.json --nporc 2", "error: taut train has no option --nporc\nhint: did you mean --nproc?\n"},
      {"train run.json --nproc two", "error: --nproc is two\nhint: give a number; see taut train --help\n"},
      {"train run.json --format xml", "error: --format is xml\nhint: give text or json\n"},
  };
  for (const auto& [arguments, error] : cases) {
    const Outcome run = run_taut(arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments;
    EXPECT_EQ(run.err, error) << arguments;
    EXPECT_EQ(run.out, "") << arguments;
  }
}

TEST_F(TrainCommand, StartsNoRankThatCouldNotWork) {
  fs::create_directory(dir_ / "empty");
  const std::string touch = "touch=" + (dir_ / "hopeless").string();
  const Outcome ranks = run_taut("train run.json --nproc 1000000 --set train_batch_size=2000000", touch);
  EXPECT_EQ(ranks.exit_code, 1);
  EXPECT_TRUE(contains(ranks.err, "1000000 ranks do not fit into this machine")) << ranks.err;
  EXPECT_TRUE(contains(ranks.err, "hint: ")) << ranks.err;
  const Outcome data =
      run_taut("train run.json --trace hopeless.db --set data.mock=false --set data.path=empty", touch);
  EXPECT_EQ(data.exit_code, 1);
  EXPECT_EQ(data.err.find("error: "), data.err.rfind("error: ")) << data.err;
  EXPECT_TRUE(contains(data.err, "empty")) << data.err;
  EXPECT_FALSE(fs::exists(dir_ / "hopeless"));
  EXPECT_FALSE(fs::exists(dir_ / "hopeless.db"));
  for (const char* value : {"--trace ''", "--steps ''", "--steps 99999999999999999999", "--nproc 0", "--nproc -1"})
    EXPECT_EQ(run_taut(std::string("train run.json ") + value, touch).exit_code, 2) << value;
  EXPECT_FALSE(fs::exists(dir_ / "hopeless"));
}

TEST_F(TrainCommand, HelpIsOnStdout) {
  const Outcome run = run_taut("train --help");
  EXPECT_EQ(run.exit_code, 0);
  for (const char* option : {"--nproc", "--trace", "--set", "--steps", "--dry-run", "--print-config", "--format"}) {
    EXPECT_TRUE(contains(run.out, option)) << option;
  }
}

TEST_F(TrainCommand, QuietDropsNotes) {
  EXPECT_TRUE(contains(run_taut("train run.json --dry-run --set parallel.gather_output=true").err,
                       "note: parallel.gather_output"));
  EXPECT_EQ(run_taut("train run.json --dry-run -q --set parallel.gather_output=true").err, "");
}

}  // namespace
}  // namespace taut
