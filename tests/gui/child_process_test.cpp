#include "gui/app/child_process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>

#include "taut.h"

namespace taut::gui {
namespace {

// Collects lines until the program has ended; `wake` is what it waits on, as the window does.
class Child {
 public:
  explicit Child(const std::vector<std::string>& command) {
    process.start(command, [this] {
      const std::lock_guard lock(mutex_);
      ++wakes_;
      changed_.notify_one();
    });
  }

  ExitStatus finish() {
    while (!process.exit_status()) wait();
    collect();
    return *process.exit_status();
  }

  void wait_for_line(const std::string& text) {
    while (!process.exit_status()) {
      collect();
      for (const OutputLine& line : lines) {
        if (line.text == text) return;
      }
      wait();
    }
  }

  ChildProcess process;
  std::vector<OutputLine> lines;

 private:
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [this] { return wakes_ > seen_; });
    seen_ = wakes_;
  }
  void collect() {
    for (OutputLine& line : process.take_lines()) lines.push_back(std::move(line));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int wakes_ = 0, seen_ = 0;
};

TEST(ChildProcess, GivesLinesOfBothStreamsAndTheExitCode) {
  Child run({"/bin/sh", "-c", "echo one; echo two; echo oops >&2; printf rest; exit 7"});
  const ExitStatus status = run.finish();
  EXPECT_EQ(status.code, 7);
  EXPECT_EQ(status.signal, 0);
  std::vector<std::string> out, err;
  for (const OutputLine& line : run.lines) (line.is_error ? err : out).push_back(line.text);
  EXPECT_EQ(out, (std::vector<std::string>{"one", "two", "rest"}));
  EXPECT_EQ(err, (std::vector<std::string>{"oops"}));
}

TEST(ChildProcess, PassesArgumentsWithoutAShell) {
  Child run({"/bin/echo", "a b; $HOME `id` \"q\""});
  run.finish();
  ASSERT_EQ(run.lines.size(), 1U);
  EXPECT_EQ(run.lines[0].text, "a b; $HOME `id` \"q\"");
}

TEST(ChildProcess, AProgramThatDoesNotExistIsAnErrorWithAHint) {
  ChildProcess process;
  try {
    process.start({"/no/such/program"}, {});
    FAIL() << "started";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/no/such/program"), std::string::npos);
    EXPECT_FALSE(error.hint().empty());
  }
}

TEST(ChildProcess, StopEndsTheProgramAndWhatItStarted) {
  Child run({"/bin/sh", "-c", "sleep 1000 & echo $!; wait"});
  while (run.lines.empty() && !run.process.exit_status()) {
    for (OutputLine& line : run.process.take_lines()) run.lines.push_back(std::move(line));
  }
  ASSERT_FALSE(run.lines.empty());
  const pid_t grandchild = std::stoi(run.lines[0].text);
  run.process.stop();
  const ExitStatus status = run.finish();
  EXPECT_EQ(status.signal, SIGTERM);
  // It has got the signal too; whoever adopts it may take a moment to bury it, so ask until it is gone or a zombie.
  bool gone = false;
  for (int i = 0; i < 1000 && !gone; ++i) {
    FILE* stat = fopen(("/proc/" + std::to_string(grandchild) + "/stat").c_str(), "r");
    char state = 'X';
    if (stat) {
      if (fscanf(stat, "%*d %*s %c", &state) != 1) state = 'X';
      fclose(stat);
    }
    gone = state == 'X' || state == 'Z';
    if (!gone) poll(nullptr, 0, 5);
  }
  EXPECT_TRUE(gone);
}

TEST(ChildProcess, KillsWhatIgnoresBeingAsked) {
  Child run({"/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"});
  run.wait_for_line("ready");
  run.process.stop(0.1);
  EXPECT_EQ(run.finish().signal, SIGKILL);
}

TEST(ChildProcess, CutsEndlessLines) {
  Child run({"/bin/sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x; echo; echo end"});
  run.finish();
  ASSERT_EQ(run.lines.size(), 2U);
  EXPECT_EQ(run.lines[0].text.size(), 64U * 1024);
  EXPECT_EQ(run.lines[1].text, "end");
}

TEST(ChildProcess, CanRunASecondProgramAfterTheFirst) {
  Child run({"/bin/echo", "first"});
  run.finish();
  std::atomic<bool> woken = false;
  run.process.start({"/bin/echo", "second"}, [&] { woken = true; });
  while (!run.process.exit_status()) poll(nullptr, 0, 1);
  const auto lines = run.process.take_lines();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].text, "second");
}

}  // namespace
}  // namespace taut::gui
