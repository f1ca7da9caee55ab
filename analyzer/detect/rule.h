// A rule looks at a trace and its metrics and says what was wasted. One rule per file; rules.cpp lists them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/detect/finding.h"
#include "analyzer/metrics/metrics.h"
#include "analyzer/timeline/timeline.h"
#include "runtime/config/config.h"

namespace taut::detect {

/// What a rule may look at.
struct Facts {
  const timeline::Timeline& timeline;
  const metrics::Metrics& metrics;
  metrics::StepRange steps;              // the steps analysed
  std::optional<config::Config> config;  // of the run; without it no patch can be made
};

using Detect = std::vector<Finding> (*)(const Facts&);

struct Rule {
  const char* id;
  Detect detect;
};

/// All rules, most specific first: a millisecond belongs to the first rule that claims it.
const std::vector<Rule>& rules();

/// Runs every rule; ids, severities (no lower than what the rule says) and order (most costly first) are filled in.
std::vector<Finding> run_rules(const Facts& facts);

// The rules.
std::vector<Finding> detect_redundant_allgather(const Facts& facts);
std::vector<Finding> detect_expert_imbalance(const Facts& facts);
std::vector<Finding> detect_loader_stall(const Facts& facts);
std::vector<Finding> detect_pipeline_bubble(const Facts& facts);
std::vector<Finding> detect_duplicate_data(const Facts& facts);

/// A prediction of `step_ms` with its range, for a step that now takes `now_ms`.
Prediction predict(double now_ms, double step_ms, double low_ms, double high_ms);

/// "12.3 ms", "45 %": numbers in sentences.
std::string format_ms(double ms);
std::string format_percent(double share);

}  // namespace taut::detect
