#include "cli/dry_run.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <iostream>

#include "runtime/config/layout.h"
#include "runtime/config/load.h"
#include "taut.h"

namespace taut::cli {
namespace {

/// Runs a program to its end and returns what it wrote to stdout; its stderr is ours. `exit_code` 128 + signal when it
/// was killed.
std::string output_of(const std::vector<std::string>& command, int& exit_code) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw Error("cannot make a pipe: " + std::string(std::strerror(errno)));
  std::vector<char*> argv;
  for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child < 0) throw Error("cannot start " + command[0] + ": " + std::strerror(errno));
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(ends[1]);
  std::string output;
  std::array<char, 4096> piece;
  while (true) {
    const ssize_t bytes = read(ends[0], piece.data(), piece.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) break;
    output.append(piece.data(), static_cast<size_t>(bytes));
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

}  // namespace

int dry_run(const config::Config& config, std::vector<std::string> worker, Format format) {
  const bool json = format == Format::json;
  config::Json layout = config::layout_json(config);
  if (!json) std::cout << config::layout_text(config) << std::flush;
  int exit_code = kOk;
  if (!worker.empty()) {
    // World size and steps are part of the check: the worker reads the same file with the same changes.
    worker.insert(worker.end(), {"--dry-run", "--set", "world_size=" + std::to_string(config.world_size)});
    const std::string found = output_of(worker, exit_code);
    if (!json) std::cout << found << std::flush;
    if (json && exit_code == kOk) {
      config::Json built = config::Json::parse(found, nullptr, /*allow_exceptions=*/false);
      if (built.is_discarded())
        throw Error("taut-worker's look at the ranks' parts is not JSON",
                    "build taut and taut-worker anew, from one source");
      layout["built"] = std::move(built);
    }
  }
  if (json) std::cout << layout.dump(2) << std::endl;
  return exit_code == kOk ? kOk : 1;
}

}  // namespace taut::cli
