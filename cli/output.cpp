#include "cli/output.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "runtime/config/whole_file.h"
#include "taut.h"

namespace taut::cli {

void make_writes_fail_politely() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

void print(std::string_view text) {
  make_writes_fail_politely();
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EPIPE) {
      return;
    } else if (errno != EINTR) {
      throw Error(std::string("cannot write the result: ") + std::strerror(errno),
                  errno == ENOSPC ? "the disk is full; free some space" : "is standard output open?");
    }
  }
}

std::string json_text(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

bool wants_color() {
  const char* const no_color = std::getenv("NO_COLOR");
  const char* const term = std::getenv("TERM");
  if (no_color && *no_color) return false;
  if (!term || std::string_view(term) == "dumb") return false;
  return ::isatty(STDOUT_FILENO) == 1;
}

void check_not_the_input(const std::string& out_path, const std::string& input_path) {
  std::error_code ignored;
  if (!out_path.empty() && std::filesystem::equivalent(out_path, input_path, ignored)) {
    throw Error("the output " + out_path + " is the trace itself", "choose another name for -o", 2);
  }
}

void deliver(const std::string& text, const std::string& out_path, const std::string& input_path) {
  if (out_path.empty()) {
    print(text);
    return;
  }
  check_not_the_input(out_path, input_path);
  make_writes_fail_politely();
  config::write_file(out_path, text);
}

}  // namespace taut::cli
