// What the commands of `taut` share. One file per command (train.cpp, info.cpp, …) with one `add_…` function that
// describes its options to CLI11 and sets `shell.run`; main.cpp holds the table of them and catches their errors.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

namespace taut::cli {

/// Exit codes besides taut::Error's 1 and 2.
inline constexpr int kOk = 0, kGateFailed = 3;

/// State of one invocation. `run` is what the chosen command will do; it returns the exit code or throws taut::Error.
struct Shell {
  bool quiet = false;    // -q: results and errors only
  bool verbose = false;  // -v: say more
  std::function<int()> run;
};

enum class Format { text, json };

/// Adds `--format text|json`.
void add_format(CLI::App& command, Format& format);

/// Adds command `name` whose parsed `options` go to `run`. Use:
///   auto options = std::make_shared<InfoOptions>();
///   auto* command = add_command(app, shell, "info", "What is in a trace", options, run_info);
///   command->add_option("FILE", options->file, "Trace file")->required();
template <class Options>
CLI::App* add_command(CLI::App& app, Shell& shell, const std::string& name, const std::string& description,
                      std::shared_ptr<Options> options, int (*run)(const Options&, const Shell&)) {
  CLI::App* command = app.add_subcommand(name, description);
  command->fallthrough();  // -q and -v may follow the command
  command->callback([&shell, options, run] { shell.run = [&shell, options, run] { return run(*options, shell); }; });
  return command;
}

// One per file in this folder; listed in main.cpp's table.
void add_train(CLI::App& app, Shell& shell);
void add_info(CLI::App& app, Shell& shell);
void add_stats(CLI::App& app, Shell& shell);
void add_analyze(CLI::App& app, Shell& shell);
void add_apply(CLI::App& app, Shell& shell);
void add_compare(CLI::App& app, Shell& shell);
void add_query(CLI::App& app, Shell& shell);
void add_gui(CLI::App& app, Shell& shell);

}  // namespace taut::cli
