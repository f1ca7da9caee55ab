// What happens when somebody dies.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/data/fixture.h"

namespace taut::data {
namespace {

using Clock = std::chrono::steady_clock;

/// Processes whose parent is `parent`, oldest first.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  std::ifstream file("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children");
  for (pid_t pid; file >> pid;) children.push_back(pid);
  return children;
}

config::Config slow_config(const Folder& folder, bool shared_memory) {
  config::Config config = small_config(folder.write("a", prose(3'000, 1)));
  config.data.num_workers = 3;
  config.data.shared_memory = shared_memory;
  config.data.read_latency_ms = 60'000;  // nobody ever finishes a batch
  return config;
}

TEST(LoaderDeath, NamesTheWorkerAndTheSignalWhileTheTrainerWaits) {
  const Folder folder;
  for (const bool shared_memory : {true, false}) {
    Loader loader(slow_config(folder, shared_memory), {.dp_rank = 0, .rank = 5});
    // Worker 2 dies while the trainer waits for worker 0.
    kill(children_of(getpid()).back(), SIGKILL);
    const auto start = Clock::now();
    const std::string error = error_of([&] { loader.next(); });
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(1));
    expect_contains(error, "loader worker 2 of rank 5 was killed by signal 9 (Killed)");
    expect_contains(error, "memory");
  }
}

TEST(LoaderDeath, HandsOutWhatWasReadyBeforeADeath) {
  config::Config config = small_config("");
  config.data.mock = true;
  config.data.num_workers = 1;
  config.data.prefetch_factor = 2;
  Loader loader(config, {});
  while (loader.queue_depth() < 2) usleep(100);
  for (const pid_t pid : children_of(getpid())) kill(pid, SIGSEGV);
  for (const pid_t pid : children_of(getpid())) {
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
  }
  loader.next();
  loader.next();
  expect_contains(error_of([&] { loader.next(); }), "loader worker 0 of rank 0 was killed by signal 11");
}

TEST(LoaderDeath, PassesOnAWorkersOwnWords) {
  const Folder folder;
  for (const bool shared_memory : {true, false}) {
    config::Config config = small_config(folder.write("a", prose(3'000, 1)));
    config.data.shared_memory = shared_memory;
    config.data.num_workers = 1;
    config.data.prefetch_factor = 1;
    config.train_steps = 100;
    Loader loader(config, {});
    loader.next();
    std::filesystem::resize_file(config.data.path, 0);
    std::string error;
    for (int i = 0; i < 5 && error.empty(); ++i) {
      try {
        loader.next();
      } catch (const Error& thrown) {
        error = std::string(thrown.what()) + " | " + thrown.hint();
      }
    }
    expect_contains(error, "loader worker 0 of rank 0: '" + config.data.path + "' became shorter");
    expect_contains(error, "| do not change the data");
  }
}

TEST(LoaderDeath, EndsItsWorkersQuickly) {
  const Folder folder;
  for (const bool shared_memory : {true, false}) {
    std::vector<pid_t> workers;
    auto start = Clock::now();
    {
      Loader loader(slow_config(folder, shared_memory), {});
      workers = children_of(getpid());
      start = Clock::now();
    }
    EXPECT_LT(Clock::now() - start, std::chrono::milliseconds(900));
    ASSERT_EQ(workers.size(), 3u);
    for (const pid_t pid : workers) EXPECT_EQ(kill(pid, 0), -1) << pid << " still runs";
  }
}

// The trainer is a child here; its workers hold a copy of a pipe's write end, which reads as closed once all are gone.
TEST(LoaderDeath, TakesTheWorkersAlongWhenTheTrainerIsKilled) {
  const Folder folder;
  const config::Config config = slow_config(folder, true);
  int held[2], ready[2];
  ASSERT_EQ(pipe(held), 0);  // inherited on purpose
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t trainer = fork();
  if (trainer == 0) {
    Loader loader(config, {});
    static_cast<void>(!write(ready[1], "x", 1));
    pause();
    _exit(0);
  }
  close(held[1]);
  close(ready[1]);
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(children_of(trainer).size(), 3u);
  kill(trainer, SIGKILL);
  waitpid(trainer, nullptr, 0);
  pollfd end{held[0], POLLIN, 0};
  EXPECT_EQ(poll(&end, 1, 5000), 1) << "a worker outlived its trainer";
  EXPECT_EQ(read(held[0], &byte, 1), 0);
  close(held[0]);
  close(ready[0]);
}

TEST(LoaderDeath, SaysThatTheProgramIsMissing) {
  const Folder folder;
  const config::Config config = small_config(folder.write("a", prose(3'000, 1)));
  const std::string error = error_of([&] { Loader(config, {}, 0, folder.path() / "no-loader"); });
  expect_contains(error, "cannot start loader worker 0");
  expect_contains(error, "No such file");
  expect_contains(error_of([&] {
                    Loader(config, {}, 0, "/bin/false");
                    Loader(config, {}, 0, "/bin/false").next();
                  }),
                  "exited with code 1");
}

TEST(LoaderProgram, RefusesToRunAlone) {
  const std::string command = TAUT_BIN_DIR "/taut-loader --worker 0 3<&- 4<&- 2>/dev/null";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 2);
  EXPECT_EQ(WEXITSTATUS(std::system(TAUT_BIN_DIR "/taut-loader 2>/dev/null")), 2);
}

}  // namespace
}  // namespace taut::data
