#include "cli/fail_on.h"

#include <algorithm>
#include <iostream>

#include "runtime/config/nearest.h"
#include "taut.h"

namespace taut::cli {
namespace {

/// Every rule that the interface names, so that a script's gate stays valid whichever of them this version checks.
const std::vector<std::string> kRules = {"any",
                                         "loader-stall",
                                         "redundant-allgather",
                                         "pipeline-bubble",
                                         "exposed-communication",
                                         "small-collectives",
                                         "straggler",
                                         "load-imbalance",
                                         "duplicate-data",
                                         "memory-headroom",
                                         "memory-pressure",
                                         "host-bound",
                                         "low-precision-off",
                                         "checkpoint-stall",
                                         "recompute-excess",
                                         "expert-imbalance",
                                         "missing-overlap",
                                         "small-allgathers",
                                         "sync-copies",
                                         "trace-quality"};

}  // namespace

std::vector<Gate> parse_gates(const std::vector<std::string>& texts) {
  std::vector<Gate> gates;
  for (const std::string& text : texts) {
    Gate gate;
    const size_t colon = text.find(':');
    gate.rule = text.substr(0, colon);
    if (std::find(kRules.begin(), kRules.end(), gate.rule) == kRules.end()) {
      const auto nearest = config::nearest(gate.rule, kRules);
      throw Error("--fail-on: there is no rule " + gate.rule,
                  nearest ? "did you mean " + *nearest + "?" : "write a rule's id, as in loader-stall, or any", 2);
    }
    if (colon != std::string::npos) {
      const std::string severity = text.substr(colon + 1);
      bool known = false;
      for (const auto candidate : {detect::Severity::low, detect::Severity::medium, detect::Severity::high}) {
        if (severity != detect::severity_name(candidate)) continue;
        gate.at_least = candidate;
        known = true;
      }
      if (!known) throw Error("--fail-on: there is no severity " + severity, "low, medium or high", 2);
    }
    gates.push_back(gate);
  }
  return gates;
}

bool check_gates(const std::vector<Gate>& gates, const std::vector<detect::Finding>& findings) {
  bool holds = true;
  for (const Gate& gate : gates) {
    for (const auto& finding : findings) {
      if ((gate.rule != "any" && gate.rule != finding.rule) || finding.severity < gate.at_least) continue;
      std::cerr << "gate: " << finding.id << " is " << detect::severity_name(finding.severity) << "\n";
      holds = false;
    }
  }
  return holds;
}

}  // namespace taut::cli
