// The loop in the window, through the real runtime: trains the sample with its loader stall, opens the trace, clicks
// Apply and rerun, and ends with both runs side by side.
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>

#include "gui/app/child_process.h"
#include "tests/gui/scratch.h"
#include "tests/gui/window_driver.h"

namespace taut::gui {
namespace {

constexpr int64_t kSteps = 14;

TEST(Loop, FromOpeningTheSamplesTraceToTheSideBySideView) {
  const std::string taut = std::string(TAUT_BIN_DIR) + "/taut";
  if (access((std::string(TAUT_BIN_DIR) + "/taut-worker").c_str(), X_OK) != 0)
    GTEST_SKIP() << "the training runtime is not built";
  if (access("/usr/share/games/fortunes", R_OK) != 0) GTEST_SKIP() << "the package fortunes is not installed";
  const test::Scratch scratch;
  const auto config = config::read_json_file(std::string(TAUT_SOURCE_DIR) + "/samples/loader_stall.json");
  const std::string sample = scratch.write("loader_stall.json", config.dump(2));
  ChildProcess training;
  training.start({taut, "train", sample, "--trace", scratch / "before.db", "--steps", std::to_string(kSteps)}, {});
  while (!training.exit_status()) poll(nullptr, 0, 20);
  std::string output;
  for (const OutputLine& line : training.take_lines()) output += line.text + "\n";
  ASSERT_EQ(training.exit_status()->code, 0) << output;

  Driver driver;
  driver.app.settings = {.taut_program = taut, .config = sample, .rerun_steps = kSteps, .wake = {}};
  open_trace(driver.app, 0, scratch / "before.db");
  driver.settle();
  ASSERT_NE(driver.app.document(), nullptr) << driver.app.sides[0].failure.what;
  driver.play([&](ImGuiTestContext* ui, App& app) {
    const auto& findings = app.document()->analysis().findings;
    IM_CHECK(!findings.empty());
    IM_CHECK_STR_EQ(findings[0].rule.c_str(), "loader-stall");
    IM_CHECK(findings[0].severity == detect::Severity::high);
    ui->ItemClick("//Findings/**/##evidence");
    IM_CHECK(app.sides[0].timeline.mark.has_value());
    ui->ItemClick("//Findings/Apply and rerun");
    IM_CHECK(wait_until(ui, [&] { return !is_busy(app); }));
    IM_CHECK_STR_EQ(app.rerun.failure().what.c_str(), "");
    IM_CHECK(app.rerun.outcome() == Rerun::Outcome::done);
    IM_CHECK_EQ(static_cast<int64_t>(app.rerun.steps().size()), kSteps);
    ui->Yield(3);
    IM_CHECK(app.sides[1].document != nullptr);
    IM_CHECK(app.comparison.has_value());
    IM_CHECK(app.comparison->judgement.verdict == tune::Verdict::faster);
    IM_CHECK_GT(app.comparison->judgement.speedup, 1.5);
    IM_CHECK(app.comparison->losses_equal.value_or(false));
  });
  if (driver.app.rerun.outcome() != Rerun::Outcome::done) {
    for (const OutputLine& line : driver.app.rerun.log()) std::fprintf(stderr, "%s\n", line.text.c_str());
  }
}

}  // namespace
}  // namespace taut::gui
