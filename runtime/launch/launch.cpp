#include "runtime/launch/launch.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "runtime/launch/rank_process.h"
#include "runtime/launch/status.h"
#include "taut.h"

namespace taut::launch {
namespace {

using Clock = std::chrono::steady_clock;

sigset_t held_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&set, signal);
  return set;
}

bool can_bind(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(port);
  const bool bound = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return bound;
}

// Below the range from which the kernel takes the ports of outgoing connections, so that none of those can steal it
// between here and rank 0's listening on it.
uint16_t free_port() {
  std::random_device random;
  std::uniform_int_distribution<int> draw(20000, 32000);
  for (int attempt = 0; attempt < 200; ++attempt) {
    const auto port = static_cast<uint16_t>(draw(random));
    if (can_bind(port)) return port;
  }
  throw Error("no free TCP port found", "is the loopback network interface up?");
}

// Ours for the rank, then the plan's, then what the launcher's own environment has besides.
std::vector<std::string> environment_of(const Plan& plan, int rank, uint16_t port, int restarts,
                                        const StatusFile& status) {
  const std::string ranks = std::to_string(plan.ranks), number = std::to_string(rank);
  std::vector<std::string> variables = {
      "RANK=" + number,
      "LOCAL_RANK=" + number,
      "WORLD_SIZE=" + ranks,
      "LOCAL_WORLD_SIZE=" + ranks,
      "MASTER_ADDR=127.0.0.1",
      "MASTER_PORT=" + std::to_string(port),
      "TAUT_RESTART_COUNT=" + std::to_string(restarts),
      std::string(kStatusFileVariable) + "=" + status.path(),
  };
  const auto add = [&variables](const std::string& variable) {
    const std::string name = variable.substr(0, variable.find('=') + 1);
    for (const std::string& known : variables) {
      if (known.starts_with(name)) return;
    }
    variables.push_back(variable);
  };
  for (const std::string& variable : plan.environment) add(variable);
  for (char** variable = environ; *variable != nullptr; ++variable) add(*variable);
  return variables;
}

// Kernel's view of the signals held by SignalsHeld.
class SignalQueue {
 public:
  SignalQueue() {
    const sigset_t set = held_signals();
    fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd_ < 0) throw Error(std::string("cannot wait for signals: ") + std::strerror(errno));
  }
  ~SignalQueue() { close(fd_); }
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int fd() const { return fd_; }
  /// The next SIGINT or SIGTERM; 0 when there is none.
  int next() {
    signalfd_siginfo info{};
    while (read(fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      if (info.ssi_signo != SIGCHLD) return static_cast<int>(info.ssi_signo);
    }
    return 0;
  }

 private:
  int fd_ = -1;
};

// One start of all ranks, watched to its end.
class Attempt {
 public:
  Attempt(const Plan& plan, SignalQueue& signals, int restarts)
      : plan_(plan), signals_(signals), status_(StatusFile::create(plan.ranks)) {
    const uint16_t port = free_port();
    ranks_.reserve(static_cast<size_t>(plan.ranks));
    for (int rank = 0; rank < plan.ranks; ++rank) {
      ranks_.push_back(RankProcess::start(rank, plan.command, environment_of(plan, rank, port, restarts, status_)));
      if (plan.on_start) plan.on_start(rank, ranks_.back().pid());
    }
  }

  void watch(Result& result) {
    while (running() > 0) {
      wait_for_news();
      for (int signal = signals_.next(); signal != 0; signal = signals_.next()) interrupt(signal, result);
      reap(result);
      if (deadline_ && Clock::now() >= *deadline_) kill_all();
      if (plan_.on_poll) plan_.on_poll();  // when it throws, ~RankProcess ends the ranks
    }
    // A rank's loaders may outlive it by a moment; nothing of the run stays behind.
    for (RankProcess& rank : ranks_) {
      rank.kill_group();
      rank.pump_stderr();
      result.cpu_s += rank.cpu_s();
    }
    if (result.failure) {
      const auto& lines = ranks_[static_cast<size_t>(result.failure->rank)].last_lines();
      result.failure->last_lines.assign(lines.begin(), lines.end());
    }
  }

 private:
  int running() const {
    int count = 0;
    for (const RankProcess& rank : ranks_) count += rank.running() ? 1 : 0;
    return count;
  }

  void wait_for_news() {
    std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}};
    for (const RankProcess& rank : ranks_) {
      if (rank.stderr_fd() >= 0) fds.push_back({rank.stderr_fd(), POLLIN, 0});
    }
    poll(fds.data(), fds.size(), static_cast<int>(plan_.poll_s * 1000));
    for (RankProcess& rank : ranks_) rank.pump_stderr();
  }

  void interrupt(int signal, Result& result) {
    const bool again = result.interrupted;
    result.interrupted = true;
    result.signal = signal;
    if (again) return kill_all();  // a second Ctrl-C means now
    stop(signal);
  }

  void stop(int signal) {
    for (const RankProcess& rank : ranks_) rank.send(signal);
    if (!deadline_) deadline_ = Clock::now() + std::chrono::microseconds(static_cast<int64_t>(plan_.grace_s * 1e6));
  }

  void kill_all() {
    for (const RankProcess& rank : ranks_) {
      if (rank.running()) rank.kill_group();
    }
  }

  void reap(Result& result) {
    std::optional<Failure> first;
    for (RankProcess& rank : ranks_) {
      if (!rank.reap()) continue;
      const int status = rank.wait_status();
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
      Failure failure;
      failure.rank = rank.rank();
      failure.pid = rank.pid();
      failure.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      failure.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
      // Of several deaths seen at once the one by a signal came first: a rank whose peer dies exits with an error.
      if (!first || (first->signal == 0 && failure.signal != 0)) first = failure;
    }
    if (!first || result.failure || result.interrupted) return;
    first->step = status_.get(first->rank);
    result.failure = first;
    stop(SIGTERM);
  }

  const Plan& plan_;
  SignalQueue& signals_;
  StatusFile status_;
  std::vector<RankProcess> ranks_;
  std::optional<Clock::time_point> deadline_;
};

}  // namespace

SignalsHeld::SignalsHeld() {
  const sigset_t set = held_signals();
  pthread_sigmask(SIG_BLOCK, &set, &before_);
}

SignalsHeld::~SignalsHeld() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

Result launch(const Plan& plan) {
  if (plan.ranks < 1 || plan.command.empty()) throw Error("nothing to start");
  const SignalsHeld held;
  SignalQueue signals;
  Result result;
  while (true) {
    Attempt(plan, signals, result.restarts).watch(result);
    if (!result.failure || result.interrupted || result.restarts >= plan.max_restarts) return result;
    if (result.failure->step < 0) return result;
    ++result.restarts;
    if (plan.on_restart) plan.on_restart(*result.failure, result.restarts);
    result.failure.reset();
  }
}

std::string describe(const Failure& failure) {
  std::string text = "rank " + std::to_string(failure.rank);
  if (failure.signal != 0) {
    const char* name = sigabbrev_np(failure.signal);
    text +=
        " was killed by " + (name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(failure.signal));
  } else {
    text += " exited with code " + std::to_string(failure.exit_code);
  }
  return text + (failure.step >= 0 ? " at step " + std::to_string(failure.step) : " before its first step");
}

std::string program_folder() {
  std::error_code ec;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ec);
  if (ec) throw Error("cannot read /proc/self/exe: " + ec.message(), "is /proc mounted?");
  return program.parent_path().string();
}

}  // namespace taut::launch
