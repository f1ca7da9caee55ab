// When an operation does not end: who is missing, and where they are.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <torch/types.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>

#include "runtime/comm/collectives.h"
#include "taut.h"
#include "tests/runtime/thread_ranks.h"

extern char** environ;

namespace taut::comm {
namespace {

/// One-shot event between threads.
class Event {
 public:
  void set() {
    {
      std::lock_guard lock(mutex_);
      happened_ = true;
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return happened_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool happened_ = false;
};

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool starts_with(const std::string& text, const std::string& start) {
  return text.rfind(start, 0) == 0;
}

TEST(RollCall, NamesTheLateRankAndWhereItIs) {
  for (const bool check : {false, true}) {
    std::string error;
    Event given_up;
    testing::run_ranks(3,
                       [&](Group& group) {
                         // Beyond the checked operations and among them: both ways of waiting.
                         const int operations = check ? 3 : 70;
                         for (int i = 0; i < operations; ++i) all_reduce(group, at::zeros({1}));
                         if (group.rank() == 2) return given_up.wait();
                         const std::string mine = error_of([&] { all_reduce(group, at::zeros({1})); });
                         if (group.rank() != 0) return given_up.wait();
                         error = mine;
                         given_up.set();
                       },
                       {.timeout_s = 3, .check = check});
    const std::string last = check ? "2" : "69", here = check ? "3" : "70";
    EXPECT_TRUE(starts_with(error, "all_reduce timed out after 3 s on group tp0 (operation " + here + ", rank 0): ") ||
                starts_with(error, "all_reduce failed on group tp0 (operation " + here + ", rank 0): "))
        << error;
    EXPECT_NE(error.find("rank 2 is at all_reduce " + last + " on tp0"), std::string::npos) << error;
  }
}

TEST(RollCall, SaysWhatTheLateRankWaitsFor) {
  std::string error;
  Event given_up;
  testing::run_ranks(2,
                     [&](Group& group) {
                       for (int i = 0; i < 64; ++i) barrier(group);  // past the checks
                       if (group.rank() == 1) {
                         error_of([&] { recv(group, at::zeros({1}), 0); });
                         return given_up.wait();
                       }
                       error = error_of([&] { all_reduce(group, at::zeros({1})); });
                       given_up.set();
                     },
                     {.timeout_s = 3});
  EXPECT_TRUE(starts_with(error, "all_reduce timed out after 3 s on group tp0 (operation 64, rank 0): rank 1 "))
      << error;
  // Both waits end after the same time: rank 1 answers while it waits, or has just given up.
  EXPECT_TRUE(error.find("rank 1 is at barrier 63 on tp0, waits in recv 0 on tp0") != std::string::npos ||
              error.find("rank 1 gave up: recv timed out") != std::string::npos)
      << error;
}

TEST(RollCall, NamesARankThatHasEnded) {
  std::string error;
  testing::run_ranks(2, [&](Group& group) {
    all_reduce(group, at::zeros({1}));
    if (group.rank() == 1) return;
    error = error_of([&] { all_reduce(group, at::zeros({1})); });
  });
  EXPECT_TRUE(starts_with(error, "all_reduce failed on group tp0 (operation 1, rank 0): rank 1 has ended")) << error;
}

/// A socket that listens on a port of the kernel's choice.
class Listener {
 public:
  Listener() : descriptor_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (::bind(descriptor_, reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(descriptor_, 1) != 0 ||
        ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      throw std::runtime_error("no port");
    }
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { close(); }
  void close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }
  int port() const { return port_; }

 private:
  int descriptor_, port_ = 0;
};

LaunchEnvironment environment_of(int rank, int world, int port) {
  LaunchEnvironment environment;
  environment.rank = environment.local_rank = rank;
  environment.world_size = environment.local_world_size = world;
  environment.master_port = port;
  return environment;
}

config::Communication settings_with(double timeout_s) {
  config::Communication settings;
  settings.timeout_s = timeout_s;
  return settings;
}

TEST(Start, APortInUseIsNamed) {
  const Listener taken;
  try {
    Rendezvous::tcp(environment_of(0, 2, taken.port()), 1.0);
    FAIL() << "the port was free";
  } catch (const Error& error) {
    EXPECT_TRUE(starts_with(error.what(),
                            "rank 0 cannot serve the rendezvous at 127.0.0.1:" + std::to_string(taken.port()) + ": "))
        << error.what();
    EXPECT_NE(std::string(error.what()).find("in use"), std::string::npos) << error.what();
    EXPECT_NE(error.hint().find("MASTER_PORT"), std::string::npos) << error.hint();
  }
}

TEST(Start, ARankThatHasNotComeIsNamed) {
  Listener port;
  port.close();
  const std::string error = error_of([&] {
    const Communicator communicator(environment_of(0, 2, port.port()), MeshSize{.dp = 2}, settings_with(0.5), at::kCPU);
  });
  EXPECT_TRUE(starts_with(error, "rank 0 cannot connect group world: rank 1 has not come; ")) << error;
}

TEST(Start, WithoutRankZeroTheOthersSaySo) {
  Listener port;
  port.close();
  const std::string error = error_of([&] { Rendezvous::tcp(environment_of(1, 2, port.port()), 0.3); });
  EXPECT_TRUE(starts_with(error, "rank 1 cannot reach the rendezvous at 127.0.0.1:" + std::to_string(port.port())))
      << error;
}

constexpr const char* kChildRank = "TAUT_TEST_RANK";
constexpr const char* kChildPort = "TAUT_TEST_PORT";

void train_three(int rank, int port) {
  at::set_num_threads(1);
  Communicator communicator(environment_of(rank, 3, port), MeshSize{.dp = 3}, settings_with(20), at::kCPU);
  const at::Tensor value = at::ones({1});
  all_reduce(communicator.dp(), value);
  if (rank == 2) ::raise(SIGKILL);
  all_reduce(communicator.dp(), value);
}

// Not a test of its own: the process of one rank, started by DeadProcess below.
TEST(RollCallChild, DISABLED_Rank) {
  const char* const rank = std::getenv(kChildRank);
  if (!rank) GTEST_SKIP();
  try {
    train_three(std::atoi(rank), std::atoi(std::getenv(kChildPort)));
  } catch (const Error& error) {
    std::_Exit(std::string(error.what()).find("rank 2 has ended or does not answer") != std::string::npos ? 42 : 1);
  }
  std::_Exit(0);
}

pid_t start_child(int rank, int port) {
  ::setenv(kChildRank, std::to_string(rank).c_str(), 1);
  ::setenv(kChildPort, std::to_string(port).c_str(), 1);
  const char* const argv[] = {"comm_test", "--gtest_filter=RollCallChild.*", "--gtest_also_run_disabled_tests",
                              nullptr};
  pid_t child = -1;
  if (::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, const_cast<char**>(argv), environ) != 0) child = -1;
  return child;
}

TEST(RollCall, NamesAProcessThatWasKilled) {
  Listener port;
  port.close();
  const pid_t first = start_child(1, port.port()), second = start_child(2, port.port());
  ASSERT_GT(first, 0);
  ASSERT_GT(second, 0);
  const std::string error = error_of([&] { train_three(0, port.port()); });
  int status = 0;
  ::waitpid(second, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_TRUE(starts_with(error, "all_reduce failed on group dp0 (operation 1, rank 0): ")) << error;
  EXPECT_NE(error.find("rank 2 has ended or does not answer"), std::string::npos) << error;
  ::waitpid(first, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  // Rank 1 may learn of rank 2, or of rank 0, which took the rendezvous along when it gave up.
  EXPECT_TRUE(WEXITSTATUS(status) == 42 || WEXITSTATUS(status) == 1) << WEXITSTATUS(status);
}

TEST(DryRun, AnyRankOfALargeMeshHasItsGroupsInOneProcess) {
  const MeshSize size{.pp = 8, .dp = 4, .cp = 2, .ep = 4, .tp = 8};
  ASSERT_EQ(size.world(), 512);
  for (int rank = 0; rank < size.world(); ++rank) {
    Communicator communicator = Communicator::dry(size, rank);
    EXPECT_EQ(communicator.world().size(), 512);
    EXPECT_EQ(communicator.tp().size(), 8);
    EXPECT_EQ(communicator.cp().size(), 2);
    EXPECT_EQ(communicator.dp_cp().size(), 8);
    EXPECT_EQ(communicator.ep().size(), 4);
    EXPECT_EQ(communicator.edp().size(), 2);
    EXPECT_EQ(communicator.pp().rank(), rank / 64);
    EXPECT_EQ(communicator.embedding() != nullptr, rank / 64 == 0 || rank / 64 == 7);
    EXPECT_EQ(communicator.tp().global_rank(), rank);
  }
  // Operations do nothing, and nobody waits.
  Communicator communicator = Communicator::dry(size, 77);
  const at::Tensor value = at::ones({4});
  all_reduce(communicator.world(), value);
  recv(communicator.pp(), value, 0);
  barrier(communicator.world());
  EXPECT_EQ(value[0].item<float>(), 1.0f);
}

}  // namespace
}  // namespace taut::comm
