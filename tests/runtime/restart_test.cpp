// A rank dies in mid-run under the real launcher, and the run ends as if nothing had happened.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tests/runtime/rank_spawner.h"

namespace taut::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The launcher's child whose environment says that it is `rank`; -1 when there is none.
pid_t pid_of_rank(pid_t launcher, int rank) {
  const fs::path process = fs::path("/proc") / std::to_string(launcher);
  std::istringstream children(content(process / "task" / std::to_string(launcher) / "children"));
  const std::string wanted = std::string(1, '\0') + "RANK=" + std::to_string(rank) + '\0';
  for (pid_t child = 0; children >> child;) {
    const std::string environment = '\0' + content(fs::path("/proc") / std::to_string(child) / "environ");
    if (environment.find(wanted) != std::string::npos) return child;
  }
  return -1;
}

/// `taut train` in `folder`; its output goes to the files out and err there.
pid_t start_taut(const fs::path& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"taut", "train"});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  setenv("OMP_NUM_THREADS", "1", 1);
  dup2(open((folder / "out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), 1);
  dup2(open((folder / "err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), 2);
  execv(TAUT_BIN_DIR "/taut", argv.data());
  _exit(127);
}

TEST(Restart, AfterARankIsKilledTheRunEndsAsIfNothingHadHappened) {
  const json changes = {{"checkpoint", {{"dir", "saved"}, {"interval_steps", 2}}},
                        {"elastic", {{"max_restarts", 1}}},
                        {"model", {{"dropout", 0.1}}},
                        {"train_steps", 16}};
  const ScratchFolder straight, disturbed;
  const RunResult whole = run_job({2, write_config(straight.path(), changes)}, straight.path());
  ASSERT_TRUE(whole.ok()) << whole.all_errors();
  ASSERT_EQ(whole.steps.size(), 16u);

  // Slow reads leave half a second between the first checkpoint and the end.
  const pid_t taut = start_taut(disturbed.path(), {write_config(disturbed.path(), changes).string(), "--nproc", "2",
                                                   "--format", "json", "--set", "data.read_latency_ms=10"});
  int status = 0;
  bool ended = false;
  while (!fs::exists(disturbed.path() / "saved" / "step-2") && !ended) {
    usleep(1000);  // the checkpoint is the event; looking for it is polling
    ended = waitpid(taut, &status, WNOHANG) != 0;
  }
  ASSERT_FALSE(ended) << content(disturbed.path() / "err");
  const pid_t victim = pid_of_rank(taut, 1);
  ASSERT_GT(victim, 0);
  kill(victim, SIGKILL);
  waitpid(taut, &status, 0);
  const std::string err = content(disturbed.path() / "err");
  ASSERT_TRUE(WIFEXITED(status)) << err;
  EXPECT_EQ(WEXITSTATUS(status), 0) << err;
  EXPECT_NE(err.find("note: rank 1 was killed by SIGKILL at step "), std::string::npos) << err;
  EXPECT_NE(err.find("starting again from the newest checkpoint (1 of 1)"), std::string::npos) << err;

  std::vector<int64_t> steps;
  std::istringstream lines(content(disturbed.path() / "out"));
  for (std::string line; std::getline(lines, line);) {
    const json step = json::parse(line);
    steps.push_back(step.at("step"));
    EXPECT_EQ(step.at("loss"), whole.steps.at(static_cast<size_t>(steps.back())).loss) << "step " << steps.back();
  }
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(std::count(steps.begin(), steps.end(), 0), 1) << "the second start began anew";
  EXPECT_EQ(steps.back(), 15);
  for (const auto& entry : fs::directory_iterator(straight.path() / "saved" / "step-16")) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(content(entry.path()) == content(disturbed.path() / "saved" / "step-16" / name)) << name;
  }
}

}  // namespace
}  // namespace taut::testing
