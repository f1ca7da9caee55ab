// Runs the built `taut` as a user would and keeps what it said.
#pragma once

#include <string>
#include <vector>

namespace taut::tests {

struct Outcome {
  int exit_code = -1;  // 128 + signal when it was killed
  std::string out, err;
};

/// `taut ARGS…` with standard input closed. `environment` are NAME=VALUE pairs added to this process's.
Outcome run_taut(const std::vector<std::string>& args, const std::vector<std::string>& environment = {});

/// A line for bash in which "$TAUT" is the program; for pipes and redirections.
Outcome run_shell(const std::string& line);

}  // namespace taut::tests
