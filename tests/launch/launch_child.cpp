// A stand-in for a training rank: does what its arguments say, in order.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/launch/status.h"

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// `action` is one of
//   step=N        report step N
//   exit=N        exit
//   die           SIGKILL to itself
//   wait          until a signal ends it
//   stubborn      ignore SIGTERM and SIGINT from now on
//   polite        exit 0 on SIGINT or SIGTERM from now on
//   say=TEXT      a line on stderr
//   print=TEXT    a line on stdout
//   touch=PATH    write PID, rank and environment into PATH.<rank>
//   child         fork a process that waits for ever
void act(const std::string& action) {
  const auto value = [&action] { return action.substr(action.find('=') + 1); };
  const int rank = std::atoi(variable("RANK").c_str());
  if (action.starts_with("step=")) {
    taut::launch::StatusFile::open(variable(taut::launch::kStatusFileVariable)).set(rank, std::atoll(value().c_str()));
  } else if (action.starts_with("exit=")) {
    std::exit(std::atoi(value().c_str()));
  } else if (action == "die") {
    kill(getpid(), SIGKILL);
  } else if (action == "wait") {
    while (true) pause();
  } else if (action == "stubborn") {
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
  } else if (action == "polite") {
    for (const int number : {SIGINT, SIGTERM}) signal(number, [](int) { _exit(0); });
  } else if (action.starts_with("say=")) {
    std::fprintf(stderr, "%s\n", value().c_str());
  } else if (action.starts_with("print=")) {
    std::printf("%s\n", value().c_str());
  } else if (action.starts_with("touch=")) {
    std::ofstream out(value() + "." + std::to_string(rank) + ".part");
    for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                             "TAUT_RESTART_COUNT", "EXTRA"}) {
      out << name << "=" << variable(name) << "\n";
    }
    out.close();
    std::rename((value() + "." + std::to_string(rank) + ".part").c_str(),
                (value() + "." + std::to_string(rank)).c_str());
  } else if (action == "child") {
    if (const pid_t pid = fork(); pid == 0) {
      while (true) pause();
    } else {
      std::fprintf(stderr, "child %d\n", static_cast<int>(pid));
    }
  }
}

}  // namespace

// launch_child [RANK:|first:|later:]ACTION…: a prefix limits an action to that rank, the first start, or later ones.
// Where the arguments are another program's (as when it stands in for taut-worker), LAUNCH_CHILD_ACTIONS holds the
// actions.
int main(int argc, char** argv) {
  const bool restarted = variable("TAUT_RESTART_COUNT") != "0";
  std::vector<std::string> actions(argv + 1, argv + argc);
  if (const std::string given = variable("LAUNCH_CHILD_ACTIONS"); !given.empty()) {
    std::istringstream words(given);
    actions.assign(std::istream_iterator<std::string>(words), {});
  }
  for (std::string action : actions) {
    bool applies = true;
    for (size_t colon = action.find(':'); colon != std::string::npos && colon < action.find('=');
         colon = action.find(':')) {
      const std::string prefix = action.substr(0, colon);
      if (prefix == "first")
        applies = applies && !restarted;
      else if (prefix == "later")
        applies = applies && restarted;
      else
        applies = applies && prefix == variable("RANK");
      action = action.substr(colon + 1);
    }
    if (applies) act(action);
  }
  return 0;
}
