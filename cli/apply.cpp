// `taut apply FILE --config IN -o OUT`: suggestions of a trace become a config.
#include <filesystem>

#include "analyzer/analyzer.h"
#include "analyzer/report/escape.h"
#include "analyzer/report/wording.h"
#include "analyzer/tune/apply.h"
#include "cli/command.h"
#include "cli/output.h"
#include "runtime/config/load.h"
#include "taut.h"

namespace taut::cli {
namespace {

struct ApplyOptions {
  std::string file, config, output;
  std::vector<std::string> findings, suggestions;
  bool dry_run = false;
  Format format = Format::text;
};

/// The folder that relative paths in `file` start from.
std::filesystem::path folder_of(const std::string& file) {
  const auto parent = std::filesystem::path(file).parent_path();
  return parent.empty() ? std::filesystem::path(".") : parent;
}

std::optional<int64_t> world_size_of(const report::Json& config) {
  if (config.is_object() && config.contains("world_size") && config["world_size"].is_number_integer()) {
    return config["world_size"].get<int64_t>();
  }
  return {};
}

report::Json result_json(const ApplyOptions& options, const std::vector<tune::Choice>& choices,
                         const config::Json& patch, const std::vector<config::Change>& changes,
                         const std::vector<std::string>& disagreements) {
  report::Json applied = report::Json::array(), diff = report::Json::array();
  for (const auto& choice : choices) {
    const auto& predicted = choice.suggestion->predicted;
    applied.push_back({{"finding", choice.finding->id},
                       {"suggestion", choice.suggestion->id},
                       {"risk", choice.suggestion->risk},
                       {"predicted",
                        {{"step_ms", report::finite(predicted.step_ms)},
                         {"low", report::finite(predicted.low)},
                         {"high", report::finite(predicted.high)},
                         {"speedup", report::finite(predicted.speedup)}}}});
  }
  const auto side = [](const config::Json& value) { return value.is_discarded() ? report::Json(nullptr) : value; };
  for (const auto& change : changes) {
    diff.push_back({{"key", change.key}, {"before", side(change.before)}, {"after", side(change.after)}});
  }
  return {{"config", options.dry_run ? report::Json(nullptr) : report::Json(options.output)},
          {"dry_run", options.dry_run},
          {"applied", applied},
          {"patch", patch},
          {"changes", diff},
          {"disagreements", disagreements}};
}

std::string result_text(const ApplyOptions& options, const std::vector<tune::Choice>& choices,
                        const config::Json& before, const config::Json& after,
                        const std::vector<std::string>& disagreements) {
  const bool is_default = options.findings.empty() && options.suggestions.empty();
  std::string out;
  if (choices.empty()) {
    out = "No finding of medium or high severity has a change to offer; the config stays as it is.\n";
  } else if (is_default) {
    out = "Taking the first suggestion of every finding that is medium or high.\n";
  }
  for (const auto& choice : choices) {
    const auto& suggestion = *choice.suggestion;
    out += report::printable(suggestion.id + ": " + suggestion.why) + "\n";
    if (suggestion.predicted.step_ms > 0) out += "  " + report::prediction_sentence(suggestion.predicted) + "\n";
    if (!suggestion.risk.empty()) out += "  risk: " + report::printable(suggestion.risk) + "\n";
  }
  for (const auto& key : disagreements) out += "note: " + report::printable(key) + "\n";
  const std::string diff = config::diff_text(before, after);
  if (!choices.empty()) out += diff.empty() ? options.config + " has these values already.\n" : diff;
  if (!diff.empty() && diff.back() != '\n') out += "\n";
  return out;
}

int run_apply(const ApplyOptions& options, const Shell& shell) {
  if (options.output.empty() && !options.dry_run) {
    throw Error("apply does not know where to write the new config",
                "name it with -o OUT, or look first with --dry-run", 2);
  }
  check_not_the_input(options.output, options.file);
  const config::Json before = config::read_json_file(options.config);
  const timeline::Timeline timeline = timeline::load(options.file);
  const analyzer::Analysis analysis = analyzer::analyze(timeline);
  const auto choices = tune::choose(analysis.findings, {options.findings, options.suggestions});
  const config::Json patch = tune::joined_patch(choices);
  const report::Json traced = report::context_of(timeline).config;
  const auto disagreements = tune::disagreements(traced, before);
  const auto folder = folder_of(options.config);
  const config::Json after = tune::patch_config(before, patch, folder, world_size_of(traced));
  make_writes_fail_politely();
  if (!options.dry_run) config::write_config_file(after, folder, options.output);
  if (options.format == Format::json) {
    print(json_text(result_json(options, choices, patch, config::diff(before, after), disagreements)));
  } else {
    std::string text = shell.quiet ? std::string() : result_text(options, choices, before, after, disagreements);
    if (!options.dry_run && !shell.quiet) text += "config: " + options.output + "\n";
    print(text);
  }
  return kOk;
}

}  // namespace

void add_apply(CLI::App& app, Shell& shell) {
  auto options = std::make_shared<ApplyOptions>();
  auto* command = add_command(app, shell, "apply", "Write a config with what a trace suggests", options, run_apply);
  command->add_option("FILE", options->file, "Trace")->required();
  command->add_option("--finding", options->findings, "Apply the first suggestion of this finding; may be repeated")
      ->allow_extra_args(false)
      ->option_text("ID");
  command->add_option("--suggestion", options->suggestions, "Apply this suggestion; may be repeated")
      ->allow_extra_args(false)
      ->option_text("ID");
  command->add_option("--config", options->config, "The config that the trace was made with")
      ->required()
      ->option_text("IN");
  command->add_option("-o,--output", options->output, "The new config; its relative paths are rewritten to hold there")
      ->option_text("OUT");
  command->add_flag("--dry-run", options->dry_run, "Print the difference, write nothing");
  add_format(*command, options->format);
}

}  // namespace taut::cli
