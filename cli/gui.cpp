// `taut gui`: becomes taut-gui, which lies beside this program and reads the rest of the command line itself.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cli/command.h"
#include "runtime/launch/launch.h"
#include "taut.h"

namespace taut::cli {
namespace {

struct GuiOptions {
  CLI::App* command = nullptr;
};

int run_gui(const GuiOptions& options, const Shell&) {
  const std::string program = (std::filesystem::path(launch::program_folder()) / "taut-gui").string();
  if (access(program.c_str(), X_OK) != 0) {
    throw Error("taut-gui is missing beside taut (" + program + ")",
                "build with the window: ./quickstart, or cmake without -DTAUT_GUI=OFF");
  }
  std::vector<std::string> words = options.command->remaining();
  std::vector<char*> arguments{const_cast<char*>(program.c_str())};
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(program.c_str(), arguments.data());
  throw Error("cannot start " + program + ": " + std::strerror(errno), "build it again");
}

}  // namespace

void add_gui(CLI::App& app, Shell& shell) {
  auto options = std::make_shared<GuiOptions>();
  CLI::App* command = add_command(app, shell, "gui", "The window; --screenshot PNG needs no display", options, run_gui);
  options->command = command;
  command->fallthrough(false);
  command->set_help_flag();  // `taut gui --help` is answered by taut-gui, as is everything else
  command->prefix_command();
}

}  // namespace taut::cli
