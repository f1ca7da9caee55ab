#include "tests/cli/run_taut.h"

#include <sys/wait.h>

#include <atomic>
#include <cstdlib>

#include "tests/cli/synthetic_run.h"

namespace taut::tests {
namespace {

std::string quoted(const std::string& word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

Outcome run_shell(const std::string& line) {
  static std::atomic<int> count{0};
  const TemporaryFolder folder("outcome-" + std::to_string(count++));
  write_text(folder / "line.sh", "TAUT=" + quoted(TAUT_BIN_DIR "/taut") + "\n" + line + "\n");
  const std::string command = "bash " + quoted(folder / "line.sh") + " >" + quoted(folder / "out") + " 2>" +
                              quoted(folder / "err") + " </dev/null";
  const int status = std::system(command.c_str());
  Outcome outcome;
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = read_text(folder / "out");
  outcome.err = read_text(folder / "err");
  return outcome;
}

Outcome run_taut(const std::vector<std::string>& args, const std::vector<std::string>& environment) {
  std::string line = "exec env";
  for (const auto& pair : environment) line += " " + quoted(pair);
  line += " \"$TAUT\"";
  for (const auto& arg : args) line += " " + quoted(arg);
  return run_shell(line);
}

}  // namespace taut::tests
