// `--fail-on RULE[:severity]`: findings as a gate for scripts.
#pragma once

#include <string>
#include <vector>

#include "analyzer/detect/finding.h"

namespace taut::cli {

struct Gate {
  std::string rule;  // "any" = every rule
  detect::Severity at_least = detect::Severity::low;
};

/// Throws taut::Error (exit code 2) for a rule or severity that does not exist.
std::vector<Gate> parse_gates(const std::vector<std::string>& texts);

/// True when every gate holds; says on standard error which finding broke one.
bool check_gates(const std::vector<Gate>& gates, const std::vector<detect::Finding>& findings);

}  // namespace taut::cli
