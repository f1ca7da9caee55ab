// Starts the ranks of one node, watches them, and ends them together.
//
// Ranks are direct children with torchrun's variables (RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR,
// MASTER_PORT). Each leads its own process group, so that its loader processes end with it and a Ctrl-C reaches it
// once, from here; each is killed by the kernel should the launcher die. Their stdout is the launcher's; their stderr
// passes through the launcher, which prefixes lines with the rank and remembers the last ones. Thread safety: one
// launch at a time per process.
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace taut::launch {

/// Blocks SIGINT, SIGTERM and SIGCHLD for this thread and those it starts from now on, so that launch() can receive
/// them. Make one before the first thread.
class SignalsHeld {
 public:
  SignalsHeld();
  ~SignalsHeld();
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_;
};

/// The rank that ended the run.
struct Failure {
  int rank = 0;
  int64_t pid = 0;
  int signal = 0;  // 0 = it exited by itself
  int exit_code = 0;
  int64_t step = -1;                    // the step it was at; -1 = before the first, or not known
  std::vector<std::string> last_lines;  // of its stderr, at most 20
};

struct Plan {
  std::vector<std::string> command;      // program (a path) and its arguments
  int ranks = 1;                         // processes to start here
  std::vector<std::string> environment;  // "K=V" for every rank, on top of ours
  int max_restarts = 0;                  // times all ranks are started again after one died; never when it died
                                         // before its first step: the next start would end like this one
  double grace_s = 5.0;                  // between SIGTERM (or the user's signal) and SIGKILL
  double poll_s = 0.1;                   // longest time between two calls of on_poll
  std::function<void()> on_poll;         // called all the while; what it throws stops the ranks and is thrown on
  std::function<void(int rank, int64_t pid)> on_start;                  // called for every started rank
  std::function<void(const Failure& failure, int restart)> on_restart;  // before start number `restart` (1, 2, …)
};

struct Result {
  bool interrupted = false;  // by SIGINT or SIGTERM
  int signal = 0;            // which
  int restarts = 0;
  std::optional<Failure> failure;  // none = all ranks exited with 0 or the run was interrupted
  double cpu_s = 0;                // user + system time of the ranks and their children
};

/// Runs the plan to its end. Sets TAUT_RESTART_COUNT (0, 1, …) and TAUT_STATUS_FILE (status.h) for the ranks. Throws
/// taut::Error when a rank cannot be started.
Result launch(const Plan& plan);

/// "rank 1 was killed by SIGKILL at step 7" / "rank 0 exited with code 1 before its first step".
std::string describe(const Failure& failure);

/// The folder this program lies in (beside /proc/self/exe), where taut-worker, taut-loader and the libraries lie too.
std::string program_folder();

}  // namespace taut::launch
