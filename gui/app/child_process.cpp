#include "gui/app/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "taut.h"

extern char** environ;

namespace taut::gui {
namespace {

constexpr size_t kLongestLine = 64 * 1024;
constexpr int kPoll_ms = 100;

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      throw Error(std::string("cannot make a pipe: ") + strerror(errno), "close other programs");
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    if (read_end >= 0) close(read_end);
    if (write_end >= 0) close(write_end);
  }
  int release_read_end() { return std::exchange(read_end, -1); }
};

// One of the two output streams: the part of a line that has arrived so far.
struct Stream {
  int fd = -1;
  bool is_error = false;
  std::string partial;
  bool skipping = false;  // the rest of a line that was too long
};

void take_in(Stream& stream, const char* data, size_t size, std::vector<OutputLine>& lines) {
  for (size_t i = 0; i < size; ++i) {
    const bool ends = data[i] == '\n';
    if (!ends && !stream.skipping) stream.partial += data[i];
    if (ends || stream.partial.size() >= kLongestLine) {
      if (!stream.skipping) lines.push_back({stream.is_error, std::move(stream.partial)});
      stream.partial.clear();
      stream.skipping = !ends;
    }
  }
}

}  // namespace

ChildProcess::~ChildProcess() {
  stop(2);
  if (reader_.joinable()) reader_.join();
}

void ChildProcess::start(const std::vector<std::string>& command, std::function<void()> wake) {
  if (reader_.joinable()) {
    if (!exit_status())
      throw Error(command.front() + " cannot start while another run goes on", "abort that one first");
    reader_.join();
  }
  Pipe out, err;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write_end, 1);
  posix_spawn_file_actions_adddup2(&actions, err.write_end, 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = 0;
  const int failed = posix_spawn(&pid, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    throw Error("cannot start " + command.front() + ": " + strerror(failed), "build it, and keep it beside taut-gui");
  }
  {
    const std::lock_guard lock(mutex_);
    lines_.clear();
    status_.reset();
    pid_ = pid;
  }
  kill_at_ms_ = 0;
  reader_ = std::thread(&ChildProcess::read, this, out.release_read_end(), err.release_read_end(), std::move(wake));
}

std::vector<OutputLine> ChildProcess::take_lines() {
  const std::lock_guard lock(mutex_);
  return std::exchange(lines_, {});
}

std::optional<ExitStatus> ChildProcess::exit_status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void ChildProcess::signal_group(int signal) {
  const std::lock_guard lock(mutex_);  // so that the group is not reaped, and its number reused, meanwhile
  if (pid_ > 0) kill(-pid_, signal);
}

void ChildProcess::stop(double grace_s) {
  signal_group(SIGTERM);
  const int64_t at = now_ms() + static_cast<int64_t>(grace_s * 1000);
  int64_t planned = kill_at_ms_;
  while ((planned == 0 || at < planned) && !kill_at_ms_.compare_exchange_weak(planned, at)) {
  }
}

void ChildProcess::read(int out, int err, std::function<void()> wake) {
  std::array<Stream, 2> streams{Stream{.fd = out, .is_error = false, .partial = {}, .skipping = false},
                                Stream{.fd = err, .is_error = true, .partial = {}, .skipping = false}};
  std::vector<char> buffer(64 * 1024);
  bool ended = false;
  int state = 0;
  while (true) {
    std::array<pollfd, 2> wanted{pollfd{streams[0].fd, POLLIN, 0}, pollfd{streams[1].fd, POLLIN, 0}};
    const int ready = poll(wanted.data(), wanted.size(), ended ? 0 : kPoll_ms);
    std::vector<OutputLine> lines;
    for (size_t i = 0; ready > 0 && i < streams.size(); ++i) {
      if (wanted[i].revents == 0) continue;
      const ssize_t size = ::read(streams[i].fd, buffer.data(), buffer.size());
      if (size > 0) {
        take_in(streams[i], buffer.data(), static_cast<size_t>(size), lines);
      } else if (size == 0 || errno != EINTR) {
        close(std::exchange(streams[i].fd, -1));
      }
    }
    if (!lines.empty()) {
      {
        const std::lock_guard lock(mutex_);
        lines_.insert(lines_.end(), std::make_move_iterator(lines.begin()), std::make_move_iterator(lines.end()));
      }
      if (wake) wake();
    }
    const bool quiet = ready <= 0 || (streams[0].fd < 0 && streams[1].fd < 0);
    // What it started may hold the pipes open for ever, so the end of the program counts, not that of its output.
    if (ended && quiet) break;
    if (streams[0].fd < 0 && streams[1].fd < 0 && !ended) poll(nullptr, 0, 10);
    if (kill_at_ms_ != 0 && now_ms() >= kill_at_ms_) signal_group(SIGKILL);
    if (!ended) {
      const std::lock_guard lock(mutex_);
      siginfo_t info{};
      // WNOWAIT first: while it is a zombie its group number cannot be reused, so leftovers can be killed safely.
      if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_) {
        if (kill_at_ms_ != 0) kill(-pid_, SIGKILL);
        waitpid(pid_, &state, 0);
        pid_ = 0;
        ended = true;
      }
    }
  }
  for (Stream& stream : streams) {
    if (stream.fd >= 0) close(stream.fd);
  }
  {
    const std::lock_guard lock(mutex_);
    for (Stream& stream : streams) {
      if (!stream.partial.empty()) lines_.push_back({stream.is_error, std::move(stream.partial)});
    }
    status_ = WIFSIGNALED(state) ? ExitStatus{.code = 0, .signal = WTERMSIG(state)} : ExitStatus{WEXITSTATUS(state), 0};
  }
  if (wake) wake();
}

}  // namespace taut::gui
