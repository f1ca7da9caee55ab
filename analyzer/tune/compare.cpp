#include "analyzer/tune/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "analyzer/tune/prediction.h"
#include "taut.h"

namespace taut::tune {
namespace {

constexpr size_t kFewSteps = 6;  // below this no difference reaches significance with two equal sides

double median_of(const Side& side, double (*value)(const Run&)) {
  std::vector<double> values;
  for (const Run& run : side) values.push_back(value(run));
  return median(values);
}

std::optional<double> median_known(const Side& side, const std::optional<double>& (*value)(const metrics::Summary&)) {
  std::vector<double> values;
  for (const Run& run : side) {
    if (const auto& known = value(run.analysis.summary)) values.push_back(*known);
  }
  if (values.empty()) return {};
  return median(values);
}

SideNumbers numbers_of(const std::string& path, const Side& side) {
  SideNumbers out;
  out.path = path;
  out.runs = static_cast<int64_t>(side.size());
  out.ranks = side.front().analysis.trace.ranks;
  out.tokens_per_s = median_of(side, [](const Run& r) { return r.analysis.summary.tokens_per_s; });
  out.utilization = median_of(side, [](const Run& r) { return r.analysis.summary.utilization; });
  out.loader_stall_share = median_of(side, [](const Run& r) { return r.analysis.summary.loader_stall_share; });
  out.communication_share = median_of(side, [](const Run& r) { return r.analysis.summary.communication_share; });
  out.bubble_fraction =
      median_known(side, [](const metrics::Summary& s) -> const std::optional<double>& { return s.bubble_fraction; });
  out.mfu = median_known(side, [](const metrics::Summary& s) -> const std::optional<double>& { return s.mfu; });
  return out;
}

double category_ms(const Side& side, metrics::Category category) {
  double ns = 0, steps = 0;
  for (const Run& run : side) {
    for (const auto& rank : run.analysis.ranks) {
      for (const auto& partition : rank.partitions) {
        ns += double(partition.ns[category]);
        ++steps;
      }
    }
  }
  return steps > 0 ? ns / steps / 1e6 : 0;
}

StepTimes step_times(const Side& side) {
  StepTimes out;
  for (const Run& run : side) {
    auto& times = out.emplace_back();
    for (const auto& [step, ms] : run.step_ms) times.push_back(ms);
  }
  return out;
}

/// Keeps only the step numbers that both runs have, when these are most of the shorter run. True when it did.
bool match_steps(const Side& a, const Side& b, StepTimes& times_a, StepTimes& times_b) {
  if (a.size() != 1 || b.size() != 1) return false;
  std::vector<double> common_a, common_b;
  for (const auto& [step, ms] : a[0].step_ms) {
    const auto other = b[0].step_ms.find(step);
    if (other == b[0].step_ms.end()) continue;
    common_a.push_back(ms);
    common_b.push_back(other->second);
  }
  const size_t shorter = std::min(a[0].step_ms.size(), b[0].step_ms.size());
  if (common_a.size() < kFewSteps || 2 * common_a.size() < shorter) return false;
  times_a = {common_a};
  times_b = {common_b};
  return true;
}

size_t count(const StepTimes& runs) {
  size_t n = 0;
  for (const auto& run : runs) n += run.size();
  return n;
}

bool is_half_precision(const config::Json& config) {
  for (const char* const key : {"bf16", "fp16"}) {
    if (!config.is_object() || !config.contains(key) || !config[key].is_object()) continue;
    const auto enabled = config[key].find("enabled");
    if (enabled != config[key].end() && *enabled == true) return true;
  }
  return false;
}

void compare_losses(const Run& a, const Run& b, Comparison& out) {
  out.loss_tolerance = is_half_precision(a.config) || is_half_precision(b.config) ? 2e-2 : 1e-4;
  double largest = 0;
  for (const auto& [step, loss] : a.losses) {
    const auto other = b.losses.find(step);
    if (other == b.losses.end()) continue;
    ++out.losses_compared;
    largest = std::max(largest, std::abs(loss - other->second));
  }
  if (out.losses_compared == 0) return;
  out.max_loss_diff = largest;
  out.losses_equal = largest <= out.loss_tolerance;
}

std::string section_text(const config::Json& config, const char* key) {
  return config.is_object() && config.contains(key) ? config[key].dump() : std::string();
}

std::string tokens_text(double tokens) {
  return std::to_string(std::llround(tokens));
}

void warn_where_not_comparable(const Side& a, const Side& b, const StepTimes& times_a, const StepTimes& times_b,
                               Comparison& out) {
  const Run &first_a = a.front(), &first_b = b.front();
  const auto warn = [&](const std::string& text) { out.warnings.push_back(text); };
  if (first_a.analysis.trace.ranks != first_b.analysis.trace.ranks) {
    warn("the number of ranks differs: " + std::to_string(first_a.analysis.trace.ranks) + " against " +
         std::to_string(first_b.analysis.trace.ranks));
  }
  if (first_a.tokens_per_step > 0 && first_b.tokens_per_step > 0 &&
      first_a.tokens_per_step != first_b.tokens_per_step) {
    warn("a step has " + tokens_text(first_a.tokens_per_step) + " tokens in A and " +
         tokens_text(first_b.tokens_per_step) + " in B; compare tokens/s, not step times");
  }
  for (const char* const section : {"model", "optimizer", "bf16", "fp16"}) {
    const std::string in_a = section_text(first_a.config, section), in_b = section_text(first_b.config, section);
    if (!in_a.empty() && !in_b.empty() && in_a != in_b) {
      warn(std::string("the runs differ in \"") + section + "\": they do not train the same thing");
    }
  }
  for (const auto& [times, name] : {std::pair{&times_a, "A"}, std::pair{&times_b, "B"}}) {
    if (count(*times) < kFewSteps) {
      warn(std::string(name) + " has only " + std::to_string(count(*times)) + " step(s) to compare; at least " +
           std::to_string(kFewSteps) + " are needed to tell a difference from noise");
    }
  }
  for (const auto& [side, name] : {std::pair{&a, "A"}, std::pair{&b, "B"}}) {
    int64_t dropped = 0;
    for (const Run& run : *side) dropped += run.analysis.quality.dropped_events;
    if (dropped > 0) warn(std::string(name) + " lost " + std::to_string(dropped) + " events while it was recorded");
  }
}

std::string side_path(const Side& side) {
  if (side.size() == 1) return side.front().path;
  return std::filesystem::path(side.front().path).parent_path().string();
}

}  // namespace

Run make_run(const timeline::Timeline& timeline) {
  Run run;
  run.path = timeline.path;
  run.analysis = analyzer::analyze(timeline);
  for (const auto& rank : run.analysis.ranks) {
    for (const auto& step : rank.partitions) {
      double& ms = run.step_ms[step.step];
      ms = std::max(ms, double(step.duration_ns()) / 1e6);
    }
  }
  for (const auto& rank : timeline.ranks) {
    for (const auto& step : rank.steps) {
      if (std::isfinite(step.loss)) run.losses.emplace(step.step, step.loss);
    }
    const bool stands_for_its_replica = rank.tp == 0 && rank.pp == 0 && rank.cp == 0;
    if (stands_for_its_replica && !rank.steps.empty()) run.tokens_per_step += double(rank.steps.back().tokens);
  }
  const std::string_view text = timeline.config_json();
  if (!text.empty()) {
    config::Json config = config::Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (config.is_object()) run.config = std::move(config);
  }
  return run;
}

Side read_side(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    for (std::filesystem::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
      const auto extension = it->path().extension();
      if (extension == ".db" || extension == ".sqlite") files.push_back(it->path());
    }
    std::sort(files.begin(), files.end());
    if (files.empty()) {
      throw Error(path.string() + " is a folder without traces", "give a trace file, or a folder with *.db files");
    }
  } else {
    files.push_back(path);
  }
  Side side;
  for (const auto& file : files) side.push_back(make_run(timeline::load(file)));
  return side;
}

Comparison compare(const Side& a, const Side& b, const JudgeOptions& options) {
  Comparison out;
  StepTimes times_a = step_times(a), times_b = step_times(b);
  for (const auto& [times, side] : {std::pair{&times_a, &a}, std::pair{&times_b, &b}}) {
    if (count(*times) == 0) {
      throw Error(side_path(*side) + " has no training steps to compare",
                  "trace a run that marks its steps (taut train --trace does)");
    }
  }
  const bool paired = match_steps(a, b, times_a, times_b);
  out.judgement = judge(times_a, times_b, paired, options);
  out.a = numbers_of(side_path(a), a);
  out.b = numbers_of(side_path(b), b);
  out.a.steps = static_cast<int64_t>(count(times_a));
  out.b.steps = static_cast<int64_t>(count(times_b));
  out.a.step_ms = out.judgement.median_a_ms;
  out.b.step_ms = out.judgement.median_b_ms;
  for (const auto category : metrics::kAllCategories) {
    out.categories.push_back({category, category_ms(a, category), category_ms(b, category)});
  }
  compare_losses(a.front(), b.front(), out);
  if (a.front().config.is_object() && b.front().config.is_object()) {
    out.config_changes = config::diff(a.front().config, b.front().config);
    out.prediction = check_prediction(a.front().analysis, a.front().config, b.front().config, out.config_changes);
    if (out.prediction) out.prediction->measured_step_ms = out.b.step_ms;
  }
  warn_where_not_comparable(a, b, times_a, times_b, out);
  return out;
}

}  // namespace taut::tune
