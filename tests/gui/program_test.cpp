// The program as a user starts it: pictures without a display, and errors in two lines.
#include <gtest/gtest.h>
#include <poll.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gui/app/child_process.h"
#include "tests/gui/scratch.h"
#include "tests/gui/traced_run.h"

namespace taut::gui {
namespace {

using test::Scratch;

struct Result {
  ExitStatus status;
  std::string out, err;
};

// Runs `taut gui …` on a machine without a display.
Result taut_gui(std::vector<std::string> arguments) {
  unsetenv("DISPLAY");
  unsetenv("WAYLAND_DISPLAY");
  std::vector<std::string> command{std::string(TAUT_BIN_DIR) + "/taut", "gui"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  ChildProcess process;
  process.start(command, {});
  while (!process.exit_status()) poll(nullptr, 0, 2);
  Result result{*process.exit_status(), {}, {}};
  for (const OutputLine& line : process.take_lines()) (line.is_error ? result.err : result.out) += line.text + "\n";
  return result;
}

std::string write_run(const Scratch& scratch, const std::string& name, int workers) {
  const test::TracedRun run{.workers = workers, .steps = 12};
  test::write_traced_run(run, test::traced_config(run, "text"), scratch / name);
  return scratch / name;
}

std::vector<unsigned char> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(GuiProgram, WritesAPictureOfEachViewWithoutADisplay) {
  const Scratch scratch;
  const std::string before = write_run(scratch, "before.db", 1), after = write_run(scratch, "after.db", 4);
  for (const char* view : {"timeline", "compare"}) {
    const std::string png = scratch / (std::string(view) + ".png");
    const Result result = taut_gui({before, after, "--screenshot", png, "--size", "800x600", "--view", view});
    ASSERT_EQ(result.status.code, 0) << result.err;
    const auto bytes = bytes_of(png);
    ASSERT_GT(bytes.size(), 10'000U) << "hardly anything was drawn";
    EXPECT_EQ(bytes[16] << 24 | bytes[17] << 16 | bytes[18] << 8 | bytes[19], 800);
    EXPECT_EQ(bytes[20] << 24 | bytes[21] << 16 | bytes[22] << 8 | bytes[23], 600);
  }
}

TEST(GuiProgram, WrongUseIsToldInTwoLinesAndLeavesNoPicture) {
  const Scratch scratch;
  const std::string run = write_run(scratch, "run.db", 1), png = scratch / "x.png";
  const auto expect_error = [&](const std::vector<std::string>& arguments, int code, const std::string& what) {
    const Result result = taut_gui(arguments);
    EXPECT_EQ(result.status.code, code) << result.err;
    EXPECT_EQ(result.err.find("error: "), 0U) << result.err;
    EXPECT_NE(result.err.find("hint: "), std::string::npos) << result.err;
    EXPECT_NE(result.err.find(what), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(png));
  };
  expect_error({run, "--screenshot", png, "--size", "1600"}, 2, "--size");
  expect_error({run, "--screenshot", png, "--size", "99999x10"}, 2, "--size");
  expect_error({run, "--screenshot", png, "--view", "nothing"}, 2, "nothing");
  expect_error({run, "--screenshot", png, "--steps", "9:3"}, 2, "--steps");
  expect_error({"--screenshot", png}, 2, "--screenshot");
  expect_error({run, "--no-such-option"}, 2, "--no-such-option");
  expect_error({scratch / "missing.db", "--screenshot", png}, 1, "missing.db");
  expect_error({scratch.write("text.db", "text"), "--screenshot", png}, 1, "text.db");
  expect_error({run, "--screenshot", scratch / "no/folder/x.png"}, 1, "folder");
  expect_error({run}, 1, "display");
}

TEST(GuiProgram, HelpNamesEveryView) {
  const Result result = taut_gui({"--help"});
  EXPECT_EQ(result.status.code, 0);
  for (const char* word :
       {"--screenshot", "--size", "--view", "--frame", "--config", "timeline", "findings", "compare"}) {
    EXPECT_NE(result.out.find(word), std::string::npos) << word;
  }
}

}  // namespace
}  // namespace taut::gui
