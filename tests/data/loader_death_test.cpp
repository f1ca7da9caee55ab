// What happens when somebody dies.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/data/prepare.h"
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

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// What this process writes to stderr while the object lives.
class Heard {
 public:
  Heard() { testing::internal::CaptureStderr(); }
  ~Heard() {
    if (!taken_) testing::internal::GetCapturedStderr();
  }
  std::string take() {
    taken_ = true;
    return testing::internal::GetCapturedStderr();
  }

 private:
  bool taken_ = false;
};

/// The child whose command line ends with "--worker N", once there is one.
pid_t worker_process(int64_t number) {
  const std::string wanted = std::string("--worker") + '\0' + std::to_string(number) + '\0';
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  while (Clock::now() < deadline) {
    for (const pid_t pid : children_of(getpid())) {
      if (read_file("/proc/" + std::to_string(pid) + "/cmdline").ends_with(wanted)) return pid;
    }
    std::this_thread::yield();
  }
  throw std::runtime_error("there is no worker " + std::to_string(number));
}

void kill_and_wait(pid_t pid, int signal) {
  kill(pid, signal);
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
}

TEST(LoaderDeath, ChangesNoBatch) {
  const Folder folder;
  config::Config text = small_config(folder.write("a", prose(9'000, 1)));
  text.train_steps = 6;
  config::Config tokens = text;
  tokens.data.path = prepare(text, folder.path()).prefix.string();
  for (config::Config config : {text, tokens}) {
    config.data.num_workers = 0;
    const std::vector<Kept> expected = all_batches(config);
    config.data.num_workers = 3;
    for (const bool shared_memory : {true, false}) {
      config.data.shared_memory = shared_memory;
      Heard heard;
      std::vector<Kept> batches;
      {
        Loader loader(config, {});
        for (size_t i = 0; i < expected.size(); ++i) {
          // Five deaths, all of one worker, on different batches: it is as far ahead as it may be each time.
          if (i % 3 == 1 && i < 15) {
            while (loader.queue_depth() < 6) std::this_thread::yield();
            kill_and_wait(worker_process(1), SIGKILL);
          }
          batches.push_back(keep(loader.next()));
        }
      }
      const std::string said = heard.take();
      EXPECT_EQ(batches, expected) << config.data.path << ", shared memory " << shared_memory;
      EXPECT_EQ(count(said, "note: loader worker 1 of rank 0 was killed by signal 9 (Killed) while it made batch "), 5u)
          << said;
    }
  }
}

TEST(LoaderDeath, IsNoticedWhileTheTrainerWaitsAndEndsTheRunAtTheThirdTime) {
  const Folder folder;
  for (const bool shared_memory : {true, false}) {
    Loader loader(slow_config(folder, shared_memory), {.dp_rank = 0, .rank = 5});
    // Worker 2 dies again and again while the trainer waits for worker 0.
    std::thread killer([] {
      for (int i = 0; i < 3; ++i) kill_and_wait(worker_process(2), SIGKILL);
    });
    Heard heard;
    const auto start = Clock::now();
    const std::string error = error_of([&] { loader.next(); });
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));  // and not the 60 s that a batch takes
    killer.join();
    EXPECT_EQ(count(heard.take(), "note: "), 2u);
    expect_contains(error,
                    "loader worker 2 of rank 5 was killed by signal 9 (Killed) while it made batch 2, for the 3rd");
    expect_contains(error, "memory");
  }
}

TEST(LoaderDeath, HandsOutWhatWasReadyAndGoesOn) {
  config::Config config = small_config("");
  config.data.mock = true;
  config.data.num_workers = 0;
  const std::vector<Kept> expected = all_batches(config);
  config.data.num_workers = 1;
  config.data.prefetch_factor = 2;
  Heard heard;
  Loader loader(config, {});
  while (loader.queue_depth() < 2) usleep(100);
  kill_and_wait(worker_process(0), SIGABRT);  // which sanitizers leave alone
  for (const Kept& batch : expected) EXPECT_EQ(keep(loader.next()), batch);
  expect_contains(heard.take(),
                  "loader worker 0 of rank 0 was killed by signal 6 (Aborted) while it made batch 2; started it again "
                  "there (death 1 of at most 2");
}

TEST(LoaderDeath, DoesNotMatterAfterTheLastBatch) {
  config::Config config = small_config("");
  config.data.mock = true;
  config.data.num_workers = 1;
  config.data.prefetch_factor = 20;
  Heard heard;
  Loader loader(config, {});
  while (loader.queue_depth() < 12) usleep(100);
  kill_and_wait(worker_process(0), SIGKILL);
  for (int i = 0; i < 12; ++i) loader.next();
  EXPECT_EQ(heard.take(), "");
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
                  "exited with code 1 while it made batch");
}

TEST(LoaderProgram, RefusesToRunAlone) {
  const std::string command = TAUT_BIN_DIR "/taut-loader --worker 0 3<&- 4<&- 2>/dev/null";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 2);
  EXPECT_EQ(WEXITSTATUS(std::system(TAUT_BIN_DIR "/taut-loader 2>/dev/null")), 2);
}

}  // namespace
}  // namespace taut::data
