#include "runtime/data/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "runtime/data/job.h"
#include "taut.h"

extern char** environ;

namespace taut::data {
namespace {

/// A copy of a descriptor whose number cannot collide with those of WorkerFd.
struct HighCopy {
  explicit HighCopy(int source) : fd(fcntl(source, F_DUPFD_CLOEXEC, 64)) {}
  ~HighCopy() { close(fd); }
  HighCopy(const HighCopy&) = delete;
  HighCopy& operator=(const HighCopy&) = delete;
  int fd;
};

}  // namespace

WorkerProcess::WorkerProcess(const std::filesystem::path& program, int64_t number,
                             const WorkerDescriptors& descriptors) {
  int life[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, life) != 0) {
    throw Error(std::string("cannot start a loader worker: ") + std::strerror(errno),
                "raise the limit of open files (ulimit -n), or lower data.num_workers");
  }
  const std::pair<int, int> wiring[] = {{descriptors.job, kJobFd},     {life[1], kLifeFd},
                                        {descriptors.taken, kTakenFd}, {descriptors.output, kOutputFd},
                                        {descriptors.ring, kRingFd},   {descriptors.source, kSourceFd}};
  int failure = 0;
  {
    std::vector<std::unique_ptr<HighCopy>> copies;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (const auto& [source, target] : wiring) {
      if (source < 0) continue;
      copies.push_back(std::make_unique<HighCopy>(source));
      if (copies.back()->fd < 0) failure = errno;
      posix_spawn_file_actions_adddup2(&actions, copies.back()->fd, target);
    }
    std::string path = program.string(), worker = std::to_string(number);
    std::string option = "--worker";
    char* const arguments[] = {path.data(), option.data(), worker.data(), nullptr};
    if (failure == 0) failure = posix_spawn(&pid_, path.c_str(), &actions, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
  }
  close(life[1]);
  life_fd_ = life[0];
  if (failure != 0) {
    close(life_fd_);
    throw Error("cannot start loader worker " + std::to_string(number) + " ('" + program.string() +
                    "'): " + std::strerror(failure),
                "taut-loader must lie beside taut-worker; ulimit -n and -u must allow data.num_workers more");
  }
}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), life_fd_(std::exchange(other.life_fd_, -1)) {}

WorkerProcess::~WorkerProcess() {
  if (pid_ > 0) {
    ask_to_end();
    if (!gone_within(1000)) kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (life_fd_ >= 0) close(life_fd_);
}

void WorkerProcess::ask_to_end() {
  shutdown(life_fd_, SHUT_WR);
}

bool WorkerProcess::gone_within(int milliseconds) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(milliseconds);
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd life{life_fd_, POLLRDHUP, 0};
    if (poll(&life, 1, static_cast<int>(left)) > 0) return true;
  }
}

WorkerProcess::End WorkerProcess::end() {
  std::vector<uint8_t> message;
  uint8_t buffer[4096];
  for (;;) {
    const ssize_t got = read(life_fd_, buffer, sizeof buffer);
    if (got > 0) message.insert(message.end(), buffer, buffer + got);
    if (got == 0 || (got < 0 && errno != EINTR)) break;
  }
  int status = 0;
  pid_t reaped;
  while ((reaped = waitpid(pid_, &status, 0)) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  LastWords words = decode_last_words(message);
  if (!words.what.empty()) return {std::move(words.what), std::move(words.hint), true};
  if (reaped < 0) return {"is gone", "", false};
  if (!WIFSIGNALED(status)) return {"exited with code " + std::to_string(WEXITSTATUS(status)), "", false};
  const int signal = WTERMSIG(status);
  std::string hint;
  if (signal == SIGKILL) {
    hint = "the kernel does this when memory runs out (see dmesg): lower data.num_workers or data.prefetch_factor";
  } else if (signal == SIGBUS) {
    hint = "a file that is mapped became shorter, or its disk failed (see dmesg): check data.path";
  }
  return {"was killed by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")", std::move(hint), false};
}

std::filesystem::path loader_program() {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "taut-loader";
  if (!std::filesystem::exists(program)) {
    throw Error("'" + program.string() + "' does not exist",
                "taut-loader is built with taut-worker and must lie beside it; data.num_workers 0 needs none");
  }
  return program;
}

}  // namespace taut::data
