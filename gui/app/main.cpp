// `taut-gui`, which `taut gui` starts: reads the command line, opens the window or writes the picture.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "gui/app/app.h"
#include "gui/app/screenshot.h"
#include "gui/app/window.h"
#include "taut.h"

namespace taut::gui {
namespace {

struct Options {
  std::vector<std::string> files;
  std::string config, screenshot, size = "1600x900", view = "timeline", steps;
  int64_t frame = 0, rerun_steps = 0;
};

constexpr int kSmallest = 320, kLargest = 8192;  // pixels

// "1600x900"
std::pair<int, int> parse_size(const std::string& text) {
  int width = 0, height = 0, used = 0;
  if (std::sscanf(text.c_str(), "%dx%d%n", &width, &height, &used) != 2 || used != static_cast<int>(text.size()) ||
      std::min(width, height) < kSmallest || std::max(width, height) > kLargest) {
    throw Error("--size is " + text, "WIDTHxHEIGHT in pixels, each from 320 to 8192, for example 1600x900", 2);
  }
  return {width, height};
}

// "3" or "3:8"
std::pair<int64_t, int64_t> parse_steps(const std::string& text) {
  long long first = 0, last = 0;
  int used = 0;
  const auto whole = [&] { return used == static_cast<int>(text.size()); };
  if (std::sscanf(text.c_str(), "%lld:%lld%n", &first, &last, &used) == 2 && whole() && first < last)
    return {first, last};
  used = 0;
  if (std::sscanf(text.c_str(), "%lld%n", &first, &used) == 1 && whole()) return {first, first + 1};
  throw Error("--steps is " + text, "a step, or FIRST:LAST without the last, for example 3:8", 2);
}

Panel parse_view(const std::string& text) {
  if (const auto panel = panel_of_view(text)) return *panel;
  std::string names;
  for (const PanelName& name : kPanelNames) names += (names.empty() ? "" : ", ") + std::string(name.view);
  throw Error("there is no view " + text, "one of " + names, 2);
}

std::string taut_beside_this_program() {
  std::error_code ec;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ec);
  return ec ? "taut" : (self.parent_path() / "taut").string();
}

void parse(int argc, char** argv, Options& options, CLI::App& cli) {
  cli.set_version_flag("--version", std::string("taut ") + kVersion);
  cli.add_option("FILE", options.files, "The trace to look into, and one to compare it with");
  cli.add_option("--config", options.config, "The config the trace was made with; default: the one stored in it")
      ->option_text("FILE");
  cli.add_option("--rerun-steps", options.rerun_steps, "Train this many steps in a rerun instead of train_steps")
      ->check(CLI::PositiveNumber)
      ->option_text("N");
  cli.add_option("--screenshot", options.screenshot, "Write a picture instead of opening a window; needs no display")
      ->option_text("PNG");
  cli.add_option("--size", options.size, "Size of window or picture")->option_text("WxH");
  cli.add_option("--view", options.view, "Panel in front: timeline, compare, findings, run, breakdown, steps, details")
      ->option_text("NAME");
  cli.add_option("--steps", options.steps, "Steps to show in the timeline, without the last")->option_text("A:B");
  cli.add_option("--frame", options.frame, "Take the picture of the N-th frame after loading")
      ->check(CLI::Range(0, 10000))
      ->option_text("N");
  cli.parse(argc, argv);
}

int run(const Options& options) {
  const auto [width, height] = parse_size(options.size);
  const Panel panel = parse_view(options.view);
  std::optional<std::pair<int64_t, int64_t>> steps;
  if (!options.steps.empty()) steps = parse_steps(options.steps);
  if (options.files.size() > 2)
    throw Error("more than two traces were given", "one to look into, and one to compare it with", 2);
  if (!options.screenshot.empty() && options.files.empty())
    throw Error("--screenshot has no trace to show", "taut gui run.db --screenshot run.png", 2);

  App app;
  app.settings = {.taut_program = taut_beside_this_program(),
                  .config = options.config,
                  .rerun_steps = options.rerun_steps,
                  .wake = {}};
  if (!options.screenshot.empty()) {
    for (size_t i = 0; i < options.files.size(); ++i) open_trace(app, i, options.files[i]);
    take_screenshot(app, {.png = options.screenshot,
                          .width = width,
                          .height = height,
                          .panel = panel,
                          .frame = options.frame,
                          .steps = steps});
    return 0;
  }
  Window window(Where::screen, width, height, app);
  app.settings.wake = wake_window;
  for (size_t i = 0; i < options.files.size(); ++i) open_trace(app, i, options.files[i]);
  app.first_view = FirstView{panel, steps};
  window.run(app);
  return 0;
}

int print_error(const std::string& what, const std::string& hint, int exit_code) {
  std::cerr << "error: " << what << "\n";
  if (!hint.empty()) std::cerr << "hint: " << hint << "\n";
  return exit_code;
}

}  // namespace
}  // namespace taut::gui

int main(int argc, char** argv) {
  using taut::gui::print_error;
  taut::gui::Options options;
  CLI::App cli{"The window: timeline, findings, Apply and rerun, before and after.", "taut gui"};
  try {
    taut::gui::parse(argc, argv, options, cli);
    return taut::gui::run(options);
  } catch (const CLI::Success& done) {
    return cli.exit(done);
  } catch (const CLI::ParseError& error) {
    return print_error(error.what(), "see taut gui --help", 2);
  } catch (const taut::Error& error) {
    return print_error(error.what(), error.hint(), error.exit_code());
  } catch (const std::exception& error) {
    return print_error(error.what(), "", 1);
  }
}
