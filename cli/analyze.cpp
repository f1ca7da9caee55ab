// `taut analyze FILE`: metrics, findings, suggestions with predicted gain.
#include <charconv>
#include <filesystem>
#include <optional>

#include "analyzer/analyzer.h"
#include "analyzer/report/report.h"
#include "cli/command.h"
#include "cli/fail_on.h"
#include "cli/output.h"
#include "taut.h"

namespace taut::cli {
namespace {

struct AnalyzeOptions {
  std::string file, steps, format, output;
  std::optional<int32_t> rank;
  std::vector<std::string> fail_on;
};

[[noreturn]] void bad_steps(const std::string& text) {
  throw Error("--steps " + text + " is no range of steps", "write A:B, A: or :B; B is the first step left out", 2);
}

std::optional<int64_t> step_number(const std::string& whole, std::string_view text) {
  if (text.empty()) return {};
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) bad_steps(whole);
  return value;
}

metrics::StepRange parse_steps(const std::string& text) {
  metrics::StepRange range;
  if (text.empty()) return range;
  const size_t colon = text.find(':');
  if (colon == std::string::npos || text.size() == 1) bad_steps(text);
  range.first = step_number(text, std::string_view(text).substr(0, colon));
  range.last = step_number(text, std::string_view(text).substr(colon + 1));
  if (range.first && range.last && *range.first >= *range.last) bad_steps(text);
  return range;
}

/// --format, else what the name of the output file says, else text.
std::string chosen_format(const AnalyzeOptions& options) {
  if (!options.format.empty()) return options.format;
  const std::string extension = std::filesystem::path(options.output).extension().string();
  for (const char* const format : {"json", "md", "html"}) {
    if (extension == std::string(".") + format) return format;
  }
  return "text";
}

std::string render(const std::string& format, const analyzer::Analysis& analysis, report::Context context) {
  if (format == "json") return json_text(report::json(analysis));
  if (format == "md") return report::markdown(analysis, context);
  if (format == "html") return report::html(analysis, context);
  return report::text(analysis, context);
}

int run_analyze(const AnalyzeOptions& options, const Shell& shell) {
  const auto steps = parse_steps(options.steps);
  const auto gates = parse_gates(options.fail_on);
  check_not_the_input(options.output, options.file);
  const timeline::Timeline timeline = timeline::load(options.file);
  const analyzer::Analysis analysis = analyzer::analyze(timeline, {.steps = steps, .rank = options.rank});
  report::Context context = report::context_of(timeline);
  context.color = options.output.empty() && wants_color();
  deliver(render(chosen_format(options), analysis, context), options.output, options.file);
  if (!options.output.empty() && !shell.quiet) print("report: " + options.output + "\n");
  return check_gates(gates, analysis.findings) ? kOk : kGateFailed;
}

}  // namespace

void add_analyze(CLI::App& app, Shell& shell) {
  auto options = std::make_shared<AnalyzeOptions>();
  auto* command =
      add_command(app, shell, "analyze", "What a run wasted, why, and what to change", options, run_analyze);
  command->add_option("FILE", options->file, "Trace")->required();
  command->add_option("--steps", options->steps, "Only these steps, B left out; default: all but the first")
      ->option_text("A:B|A:|:B");
  command->add_option("--rank", options->rank, "Report this rank only")->option_text("R");
  command->add_option("--format", options->format, "Default: text, or what the name after -o ends in")
      ->check(CLI::IsMember({"text", "json", "md", "html"}))
      ->option_text("text|json|md|html");
  command->add_option("-o,--output", options->output, "Write the report to this file")->option_text("OUT");
  command->add_option("--fail-on", options->fail_on, "Exit with 3 when this rule (or any) has a finding this severe")
      ->allow_extra_args(false)
      ->option_text("RULE[:severity]");
}

}  // namespace taut::cli
