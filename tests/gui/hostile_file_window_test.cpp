// Files that are broken, empty, foreign, tiny or huge: each either shows or says in words why it does not.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/analyzer/trace_builder.h"
#include "tests/gui/scratch.h"
#include "tests/gui/traced_run.h"
#include "tests/gui/window_driver.h"

namespace taut::gui {
namespace {

using test::Scratch;

void expect_refused(const std::string& path) {
  Driver driver;
  open_trace(driver.app, 0, path);
  driver.settle();
  EXPECT_EQ(driver.app.document(), nullptr) << path;
  EXPECT_FALSE(driver.app.sides[0].failure.what.empty()) << path;
  // The user can go on from there.
  driver.play([](ImGuiTestContext* ui, App&) {
    ui->ItemClick("//Timeline/Open another trace");
    ui->Yield(2);
    IM_CHECK(ui->WindowInfo("//Open").Window != nullptr);
    ui->ItemClick("//Open/Cancel");
  });
}

void draw_every_panel(Driver& driver) {
  for (const PanelName& name : kPanelNames) {
    driver.app.bring_to_front = name.panel;
    for (int i = 0; i < 3; ++i) driver.frame();
  }
}

TEST(HostileFile, BrokenFilesSayWhatIsWrongAndLetTheUserGoOn) {
  const Scratch scratch;
  expect_refused(scratch / "missing.db");
  expect_refused(scratch.write("empty.db", ""));
  expect_refused(scratch.write("text.db", std::string(5000, 'x')));
  const std::string whole = scratch / "whole.db";
  const test::TracedRun run{.steps = 6};
  test::write_traced_run(run, test::traced_config(run, "text"), whole);
  std::filesystem::copy_file(whole, scratch / "cut.db");
  std::filesystem::resize_file(scratch / "cut.db", 20'000);
  expect_refused(scratch / "cut.db");
}

TEST(HostileFile, ATraceWithoutStepsOrSlicesShowsThatItIsEmpty) {
  test::TraceBuilder trace;
  trace.rank(0);
  trace.finish();
  Driver driver;
  open_trace(driver.app, 0, trace.path());
  driver.settle();
  ASSERT_NE(driver.app.document(), nullptr) << driver.app.sides[0].failure.what;
  draw_every_panel(driver);
}

TEST(HostileFile, OneRankOneStepIsATrace) {
  const Scratch scratch;
  const test::TracedRun run{.ranks = 1, .steps = 1};
  test::write_traced_run(run, test::traced_config(run, "text"), scratch / "one.db");
  Driver driver;
  open_trace(driver.app, 0, scratch / "one.db");
  driver.settle();
  ASSERT_NE(driver.app.document(), nullptr);
  draw_every_panel(driver);
  EXPECT_GT(driver.app.sides[0].timeline.items_drawn, 3U);
}

TEST(HostileFile, AMillionSlicesOpenAndEveryFrameDrawsWhatThePixelsShow) {
  const Scratch scratch;
  const test::TracedRun run{.steps = 6000};
  test::write_traced_run(run, test::traced_config(run, "text"), scratch / "million.db");
  Driver driver;
  open_trace(driver.app, 0, scratch / "million.db");
  driver.settle();
  ASSERT_NE(driver.app.document(), nullptr);
  ASSERT_GT(driver.app.document()->timeline.events, 1'000'000);
  EXPECT_LE(driver.app.document()->steps.step.size(), 4096U);
  TimelineState& state = driver.app.sides[0].timeline;
  size_t lines = 0;
  for (const Track& track : driver.app.document()->tracks) lines += track.rows.size();
  for (int i = 0; i < 60; ++i) {
    zoom(state.view, 0.4, 0.75);
    driver.frame();
    EXPECT_GT(state.items_drawn, 0U);
    EXPECT_LT(static_cast<double>(state.items_drawn), static_cast<double>(lines) * (2 * 1600 / kFoldPx + 4));
  }
}

TEST(HostileFile, NamesAreShownAsTextWhateverTheyHold) {
  test::TraceBuilder trace;
  trace.rank(0);
  trace.range(0, "\x1b[31m%s%n##id###x\xff\xfe", 0, 100);
  trace.range(0, std::string(100'000, 'W').c_str(), 200, 300);
  trace.step(0, 0, 0, 400);
  trace.finish();
  Driver driver;
  open_trace(driver.app, 0, trace.path());
  driver.settle();
  ASSERT_NE(driver.app.document(), nullptr);
  TimelineState& state = driver.app.sides[0].timeline;
  for (int32_t track = 0; track < static_cast<int32_t>(driver.app.document()->tracks.size()); ++track) {
    state.selected = {track, 0};
    draw_every_panel(driver);
  }
}

TEST(HostileFile, ComparingTracesThatDoNotFitSaysSo) {
  const Scratch scratch;
  const test::TracedRun run{.steps = 8};
  test::write_traced_run(run, test::traced_config(run, "text"), scratch / "a.db");
  test::TraceBuilder nothing;
  nothing.rank(0);
  nothing.finish();
  Driver driver;
  open_trace(driver.app, 0, scratch / "a.db");
  open_trace(driver.app, 1, nothing.path());
  driver.settle();
  driver.settle();
  EXPECT_FALSE(driver.app.comparison.has_value());
  EXPECT_FALSE(driver.app.comparison_failure.what.empty());
  draw_every_panel(driver);
}

TEST(HostileFile, LoadingCanBeCancelledAndAnotherFileOpened) {
  const Scratch scratch;
  const test::TracedRun run{.steps = 20};
  test::write_traced_run(run, test::traced_config(run, "text"), scratch / "a.db");
  Driver driver;
  open_trace(driver.app, 0, scratch / "a.db");
  cancel_loading(driver.app, 0);
  driver.settle();
  EXPECT_EQ(driver.app.document(), nullptr);
  EXPECT_TRUE(driver.app.sides[0].failure.what.empty());
  open_trace(driver.app, 0, scratch / "a.db");
  open_trace(driver.app, 0, scratch / "a.db");  // changed their mind while it loads
  driver.settle();
  EXPECT_NE(driver.app.document(), nullptr);
}

// Exports of Nsight Systems: from $TAUT_TRACES/nsys, else from where the project's shared traces lie beside the clone.
TEST(HostileFile, NsightSystemsExportsOpen) {
  const char* traces = std::getenv("TAUT_TRACES");
  const std::filesystem::path folder =
      std::filesystem::path(traces ? traces : std::string(TAUT_SOURCE_DIR) + "/../shared/traces") / "nsys";
  if (!std::filesystem::is_directory(folder)) GTEST_SKIP() << "set TAUT_TRACES to a folder with nsys/*.sqlite";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".sqlite") continue;
    Driver driver;
    open_trace(driver.app, 0, entry.path());
    driver.settle();
    ASSERT_NE(driver.app.document(), nullptr) << entry.path() << ": " << driver.app.sides[0].failure.what;
    draw_every_panel(driver);
    EXPECT_GT(driver.app.sides[0].timeline.items_drawn, 0U) << entry.path();
  }
}

}  // namespace
}  // namespace taut::gui
