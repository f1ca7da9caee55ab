// Ranks that end, die, are interrupted and are started again. Ranks are launch_child processes.
#include "runtime/launch/launch.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "taut.h"

namespace taut::launch {
namespace {

namespace fs = std::filesystem;

class Launch : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/launch-XXXXXX";
    dir_ = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(dir_); }

  Plan plan(int ranks, std::vector<std::string> actions) {
    Plan plan;
    plan.command = {std::string(TAUT_BIN_DIR) + "/launch_child"};
    plan.command.insert(plan.command.end(), actions.begin(), actions.end());
    plan.ranks = ranks;
    plan.on_start = [this](int, int64_t pid) { pids_.insert(static_cast<pid_t>(pid)); };
    return plan;
  }

  bool file_exists(const std::string& name) { return fs::exists(dir_ / name); }

  std::map<std::string, std::string> variables(const std::string& file) {
    std::map<std::string, std::string> out;
    std::ifstream in(dir_ / file);
    for (std::string line; std::getline(in, line);)
      out[line.substr(0, line.find('='))] = line.substr(line.find('=') + 1);
    return out;
  }

  void expect_all_gone() {
    for (const pid_t pid : pids_) EXPECT_TRUE(kill(pid, 0) != 0 && errno == ESRCH) << pid << " still runs";
  }

  fs::path dir_;
  std::set<pid_t> pids_;
};

TEST_F(Launch, EndsWellWhenAllRanksDo) {
  const Result result = launch(plan(3, {"exit=0"}));
  EXPECT_FALSE(result.failure);
  EXPECT_FALSE(result.interrupted);
  EXPECT_EQ(pids_.size(), 3u);
}

TEST_F(Launch, GivesTorchrunsVariablesAndTheCallers) {
  Plan p = plan(2, {"touch=" + (dir_ / "env").string()});
  p.environment = {"EXTRA=a=b c", "RANK=9"};
  launch(p);
  auto first = variables("env.0"), second = variables("env.1");
  EXPECT_EQ(first["RANK"], "0");
  EXPECT_EQ(second["RANK"], "1");
  EXPECT_EQ(second["LOCAL_RANK"], "1");
  EXPECT_EQ(first["WORLD_SIZE"], "2");
  EXPECT_EQ(first["LOCAL_WORLD_SIZE"], "2");
  EXPECT_EQ(first["MASTER_ADDR"], "127.0.0.1");
  EXPECT_EQ(first["MASTER_PORT"], second["MASTER_PORT"]);
  EXPECT_GT(std::stoi(first["MASTER_PORT"]), 1023);
  EXPECT_EQ(first["TAUT_RESTART_COUNT"], "0");
  EXPECT_EQ(first["EXTRA"], "a=b c");
}

TEST_F(Launch, NamesTheRankThatFailedAndStopsTheOthers) {
  const Result result = launch(plan(3, {"step=7", "1:say=error: disk full", "1:exit=5", "wait"}));
  ASSERT_TRUE(result.failure);
  EXPECT_EQ(result.failure->rank, 1);
  EXPECT_EQ(result.failure->exit_code, 5);
  EXPECT_EQ(result.failure->signal, 0);
  EXPECT_EQ(result.failure->step, 7);
  EXPECT_EQ(describe(*result.failure), "rank 1 exited with code 5 at step 7");
  EXPECT_EQ(result.failure->last_lines, std::vector<std::string>{"error: disk full"});
  expect_all_gone();
}

TEST_F(Launch, NamesSignalAndStepOfARankKilledFromOutside) {
  Plan p = plan(2, {"step=12", "touch=" + (dir_ / "ready").string(), "wait"});
  std::map<int, pid_t> by_rank;
  p.on_start = [&](int rank, int64_t pid) {
    by_rank[rank] = static_cast<pid_t>(pid);
    pids_.insert(static_cast<pid_t>(pid));
  };
  p.poll_s = 0.01;
  p.on_poll = [&, killed = false]() mutable {
    if (killed || !file_exists("ready.0") || !file_exists("ready.1")) return;
    kill(by_rank[0], SIGKILL);
    killed = true;
  };
  const Result result = launch(p);
  ASSERT_TRUE(result.failure);
  EXPECT_EQ(describe(*result.failure), "rank 0 was killed by SIGKILL at step 12");
  expect_all_gone();
}

TEST_F(Launch, SaysWhenNoStepWasReached) {
  const Result result = launch(plan(1, {"exit=3"}));
  ASSERT_TRUE(result.failure);
  EXPECT_EQ(describe(*result.failure), "rank 0 exited with code 3 before its first step");
}

TEST_F(Launch, KillsRanksThatIgnoreSigterm) {
  Plan p = plan(2, {"1:stubborn", "1:touch=" + (dir_ / "ready").string(), "1:wait", "polite", "0:wait"});
  p.grace_s = 0.05;
  p.poll_s = 0.01;
  std::map<int, pid_t> by_rank;
  p.on_start = [&](int rank, int64_t pid) {
    by_rank[rank] = static_cast<pid_t>(pid);
    pids_.insert(static_cast<pid_t>(pid));
  };
  p.on_poll = [&] {
    if (file_exists("ready.1")) kill(by_rank[0], SIGKILL);
  };
  const Result result = launch(p);
  ASSERT_TRUE(result.failure);
  EXPECT_EQ(result.failure->rank, 0);
  expect_all_gone();
}

TEST_F(Launch, ForwardsSigintAndReportsIt) {
  Plan p = plan(2, {"polite", "touch=" + (dir_ / "ready").string(), "wait"});
  p.poll_s = 0.01;
  p.on_poll = [&, sent = false]() mutable {
    if (sent || !file_exists("ready.0") || !file_exists("ready.1")) return;
    kill(getpid(), SIGINT);
    sent = true;
  };
  const Result result = launch(p);
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.signal, SIGINT);
  EXPECT_FALSE(result.failure);
  expect_all_gone();
}

TEST_F(Launch, StartsAgainAfterADeath) {
  Plan p = plan(2, {"step=4", "first:1:die", "first:wait", "later:touch=" + (dir_ / "second").string()});
  p.max_restarts = 3;
  std::vector<int> restarts;
  p.on_restart = [&](const Failure& failure, int restart) {
    EXPECT_EQ(failure.rank, 1);
    EXPECT_EQ(failure.signal, SIGKILL);
    restarts.push_back(restart);
  };
  const Result result = launch(p);
  EXPECT_FALSE(result.failure);
  EXPECT_EQ(result.restarts, 1);
  EXPECT_EQ(restarts, std::vector<int>{1});
  EXPECT_EQ(variables("second.0")["TAUT_RESTART_COUNT"], "1");
  expect_all_gone();
}

TEST_F(Launch, GivesUpAfterTheLastRestart) {
  Plan p = plan(1, {"step=0", "die"});
  p.max_restarts = 2;
  const Result result = launch(p);
  ASSERT_TRUE(result.failure);
  EXPECT_EQ(result.restarts, 2);
  EXPECT_EQ(pids_.size(), 3u);
}

TEST_F(Launch, DoesNotRepeatAStartThatNeverReachesAStep) {
  Plan p = plan(1, {"exit=1"});
  p.max_restarts = 5;
  EXPECT_EQ(launch(p).restarts, 0);
  EXPECT_EQ(pids_.size(), 1u);
}

TEST_F(Launch, WhatThePollThrowsEndsTheRanks) {
  Plan p = plan(2, {"stubborn", "wait"});
  p.on_poll = [] { throw Error("the disk is full"); };
  EXPECT_THROW(launch(p), Error);
  expect_all_gone();
}

TEST_F(Launch, LeavesNoGrandchildBehind) {
  const Result result = launch(plan(1, {"child", "exit=9"}));
  ASSERT_TRUE(result.failure);
  ASSERT_EQ(result.failure->last_lines.size(), 1u);
  const pid_t grandchild = std::stoi(result.failure->last_lines[0].substr(6));
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, grandchild, 0));
  if (pidfd < 0) return;  // gone and reaped by whoever adopted it
  pollfd ended{pidfd, POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, 10'000), 1) << "it still runs";
  close(pidfd);
}

TEST_F(Launch, AMissingProgramIsAClearError) {
  Plan p = plan(2, {});
  p.command = {(dir_ / "no-such-program").string()};
  try {
    launch(p);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no-such-program"), std::string::npos);
    EXPECT_FALSE(error.hint().empty());
  }
}

TEST_F(Launch, CountsTheRanksCpuTime) {
  EXPECT_GT(launch(plan(1, {"exit=0"})).cpu_s, 0.0);
}

}  // namespace
}  // namespace taut::launch
