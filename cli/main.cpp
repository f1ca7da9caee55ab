// `taut`: finds the command, runs it, and prints its errors in two lines.
#include <algorithm>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "runtime/config/nearest.h"
#include "taut.h"

namespace taut::cli {
namespace {

// Every command: adding one is one file and one line here.
constexpr void (*kCommands[])(CLI::App&, Shell&) = {
    add_train, add_info, add_stats, add_analyze, add_apply, add_compare, add_query, add_gui,
};

int print_error(const std::string& what, const std::string& hint, int exit_code) {
  std::cout.flush();
  std::cerr << "error: " << what << "\n";
  if (!hint.empty()) std::cerr << "hint: " << hint << "\n";
  return exit_code;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// The command that was named on the command line, or `app` when none was.
const CLI::App& chosen(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? app : *commands.front();
}

int usage_error(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const CLI::App& command = chosen(app);
  const std::string name = &command == &app ? "taut" : "taut " + command.get_name();
  std::string hint = "see " + name + " --help";
  for (int i = 1; i < argc && &command == &app; ++i) {
    const std::string word = argv[i];
    if (word.empty() || word[0] == '-') continue;
    const auto nearest = config::nearest(word, command_names(app));
    return print_error("there is no command " + word, nearest ? "did you mean taut " + *nearest + "?" : hint, 2);
  }
  std::string what = error.what();
  constexpr std::string_view kNoNumber = "Could not convert: ";
  if (what.starts_with(kNoNumber)) {  // "…--nproc = x"
    what = what.substr(kNoNumber.size());
    if (const size_t equals = what.find(" = "); equals != std::string::npos) what.replace(equals, 3, " is ");
    return print_error(what, "give a number; " + hint, 2);
  }
  std::replace(what.begin(), what.end(), '\n', ' ');
  for (int i = 1; i < argc; ++i) {
    const std::string word = std::string(argv[i]).substr(0, std::string(argv[i]).find('='));
    if (word.rfind("--", 0) != 0 || what.find(word) == std::string::npos) continue;
    const auto known = option_names(command);
    if (std::find(known.begin(), known.end(), word) != known.end()) continue;
    what = name + " has no option " + word;
    if (const auto nearest = config::nearest(word, known)) hint = "did you mean " + *nearest + "?";
    break;
  }
  return print_error(what, hint, 2);
}

int run(int argc, char** argv) {
  Shell shell;
  CLI::App app{"Taut trains with 3D parallelism, shows what each step wasted, and tunes the configuration.", "taut"};
  app.set_version_flag("--version", std::string("taut ") + kVersion);
  app.add_flag("-q,--quiet", shell.quiet, "Print results and errors only");
  app.add_flag("-v,--verbose", shell.verbose, "Say more");
  app.require_subcommand(1);
  app.footer(
      "taut COMMAND --help explains one command. Exit codes: 0 ok, 1 error, 2 wrong usage, 3 a --fail-on gate did not "
      "hold.");
  for (const auto add : kCommands) add(app, shell);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {  // --help, --version
    return app.exit(done);
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error, argc, argv);
  }
  return shell.run();
}

}  // namespace

void add_format(CLI::App& command, Format& format) {
  const auto choose = [&format](const std::string& name) {
    if (name != "text" && name != "json") throw Error("--format is " + name, "give text or json", 2);
    format = name == "json" ? Format::json : Format::text;
  };
  command.add_option_function<std::string>("--format", choose, "How results are printed; default: text")
      ->option_text("text|json");
}

}  // namespace taut::cli

int main(int argc, char** argv) {
  try {
    return taut::cli::run(argc, argv);
  } catch (const taut::Error& error) {
    return taut::cli::print_error(error.what(), error.hint(), error.exit_code());
  } catch (const std::bad_alloc&) {
    return taut::cli::print_error("out of memory", "free some memory, or use a smaller trace or model", 1);
  } catch (const std::exception& error) {
    return taut::cli::print_error(error.what(), "", 1);
  }
}
