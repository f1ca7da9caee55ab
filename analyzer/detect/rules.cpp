#include "analyzer/detect/rule.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace taut::detect {

const std::vector<Rule>& rules() {
  static const std::vector<Rule> kRules = {
      {"redundant-allgather", detect_redundant_allgather},
      {"expert-imbalance", detect_expert_imbalance},
      {"loader-stall", detect_loader_stall},
      {"pipeline-bubble", detect_pipeline_bubble},
      {"duplicate-data", detect_duplicate_data},
  };
  return kRules;
}

std::vector<Finding> run_rules(const Facts& facts) {
  std::vector<Finding> findings;
  for (const Rule& rule : rules()) {
    for (Finding& finding : rule.detect(facts)) {
      finding.rule = rule.id;
      finding.severity = std::max(finding.severity, severity_of(finding.cost_share));
      findings.push_back(std::move(finding));
    }
  }
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.cost_share > b.cost_share; });
  std::map<std::string, int> count;
  for (Finding& finding : findings) {
    finding.id = finding.rule + "#" + std::to_string(++count[finding.rule]);
    for (size_t i = 0; i < finding.suggestions.size(); ++i) {
      finding.suggestions[i].id = finding.id + "." + static_cast<char>('a' + i);
    }
  }
  return findings;
}

Prediction predict(double now_ms, double step_ms, double low_ms, double high_ms) {
  return {step_ms, std::min(low_ms, step_ms), std::max(high_ms, step_ms), step_ms > 0 ? now_ms / step_ms : 1};
}

std::string format_ms(double ms) {
  char text[32];
  std::snprintf(text, sizeof text, ms < 10 ? "%.2f ms" : "%.1f ms", ms);
  return text;
}

std::string format_percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, share < 0.1 ? "%.1f %%" : "%.0f %%", share * 100);
  return text;
}

const char* severity_name(Severity severity) {
  switch (severity) {
    case Severity::high:
      return "high";
    case Severity::medium:
      return "medium";
    case Severity::low:
      break;
  }
  return "low";
}

Severity severity_of(double cost_share) {
  if (cost_share >= 0.10) return Severity::high;
  if (cost_share >= 0.03) return Severity::medium;
  return Severity::low;
}

}  // namespace taut::detect
