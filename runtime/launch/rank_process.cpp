#include "runtime/launch/rank_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "taut.h"

namespace taut::launch {
namespace {

constexpr size_t kRememberedLines = 20;
constexpr size_t kLongestLine = 4096;

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

void close_pair(const int (&fds)[2]) {
  close(fds[0]);
  close(fds[1]);
}

// In the child, between fork and exec: only async-signal-safe calls. Reports an exec that failed through `failed_fd`.
[[noreturn]] void become_rank(pid_t parent, char* const* argv, char* const* envp, int stderr_fd, int failed_fd) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int error = 0;
  if (getppid() != parent) _exit(127);  // the launcher died before the line above
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD, SIGPIPE}) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (dup2(stderr_fd, STDERR_FILENO) < 0) error = errno;
  if (error == 0) {
    execve(argv[0], argv, envp);
    error = errno;
  }
  const ssize_t ignored = write(failed_fd, &error, sizeof error);
  _exit(ignored < 0 ? 126 : 127);
}

}  // namespace

RankProcess RankProcess::start(int rank, const std::vector<std::string>& command,
                               const std::vector<std::string>& environment) {
  int err[2], failed[2];
  if (pipe2(err, O_CLOEXEC) != 0)
    throw Error(std::string("cannot make a pipe: ") + std::strerror(errno), "raise ulimit -n");
  if (pipe2(failed, O_CLOEXEC) != 0) {
    close_pair(err);
    throw Error(std::string("cannot make a pipe: ") + std::strerror(errno), "raise ulimit -n");
  }
  const auto argv = pointers(command), envp = pointers(environment);
  const pid_t parent = getpid(), pid = fork();
  if (pid == 0) become_rank(parent, argv.data(), envp.data(), err[1], failed[1]);
  const int fork_error = errno;
  close(err[1]);
  close(failed[1]);
  if (pid < 0) {
    close(err[0]);
    close(failed[0]);
    throw Error("cannot start rank " + std::to_string(rank) + ": " + std::strerror(fork_error),
                "raise ulimit -u, or use fewer ranks");
  }
  setpgid(pid, pid);  // both sides set it: whoever comes first
  fcntl(err[0], F_SETFL, O_NONBLOCK);
  RankProcess process(rank, pid, err[0]);
  int exec_error = 0;
  ssize_t got = 0;
  do got = read(failed[0], &exec_error, sizeof exec_error);
  while (got < 0 && errno == EINTR);
  close(failed[0]);
  if (got > 0) {
    throw Error("cannot start " + command.front() + ": " + std::strerror(exec_error),
                "it should lie beside taut: build it, or install it there");
  }
  return process;
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : rank_(other.rank_),
      pid_(std::exchange(other.pid_, -1)),
      running_(std::exchange(other.running_, false)),
      wait_status_(other.wait_status_),
      cpu_s_(other.cpu_s_),
      stderr_fd_(std::exchange(other.stderr_fd_, -1)),
      line_(std::move(other.line_)),
      last_lines_(std::move(other.last_lines_)) {}

RankProcess::~RankProcess() {
  if (running_) {
    kill_group();
    waitpid(static_cast<pid_t>(pid_), nullptr, 0);
  }
  if (stderr_fd_ >= 0) close(stderr_fd_);
}

void RankProcess::emit_line() {
  const std::string text = "[rank " + std::to_string(rank_) + "] " + line_ + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
  last_lines_.push_back(std::move(line_));
  line_.clear();
  if (last_lines_.size() > kRememberedLines) last_lines_.pop_front();
}

void RankProcess::pump_stderr() {
  char buffer[4096];
  while (stderr_fd_ >= 0) {
    const ssize_t got = read(stderr_fd_, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      if (!line_.empty()) emit_line();
      close(stderr_fd_);
      stderr_fd_ = -1;
      return;
    }
    for (ssize_t i = 0; i < got; ++i) {
      if (buffer[i] != '\n') line_ += buffer[i];
      if (buffer[i] == '\n' || line_.size() >= kLongestLine) emit_line();
    }
  }
}

bool RankProcess::reap() {
  if (!running_) return false;
  rusage usage{};
  const pid_t got = wait4(static_cast<pid_t>(pid_), &wait_status_, WNOHANG, &usage);
  if (got != static_cast<pid_t>(pid_)) return false;
  running_ = false;
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  cpu_s_ = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  return true;
}

void RankProcess::send(int signal) const {
  if (running_) kill(static_cast<pid_t>(pid_), signal);
}

void RankProcess::kill_group() const {
  if (pid_ > 0) kill(static_cast<pid_t>(-pid_), SIGKILL);
}

}  // namespace taut::launch
