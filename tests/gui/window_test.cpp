// The window driven as a user would: open, look, click a finding, zoom, apply, rerun, compare.
#include <gtest/gtest.h>
#include <imgui_internal.h>

#include <cmath>

#include "gui/app/app.h"
#include "gui/timeline/draw.h"
#include "tests/gui/scratch.h"
#include "tests/gui/traced_run.h"
#include "tests/gui/window_driver.h"

namespace taut::gui {
namespace {

using test::Scratch;
using test::TracedRun;

/// A trace with a loader stall, and its data.
std::string write_stalled_run(const Scratch& scratch, TracedRun run = {}, int64_t seed = 1234) {
  auto config = test::traced_config(run, scratch.write("text.txt", "to be or not to be\n"));
  config["data"]["seed"] = seed;
  const std::string path = scratch / "before.db";
  test::write_traced_run(run, config, path);
  return path;
}

std::string stand_in() {
  return std::string(TAUT_BIN_DIR) + "/gui_stand_in_taut";
}

bool window_is_in_front(const char* title) {
  const ImGuiWindow* window = ImGui::FindWindowByName(title);
  return window && window->DockIsActive && window->DockTabIsVisible;
}

TEST(Window, EveryPanelDrawsATraceOfTwoRanks) {
  const Scratch scratch;
  Driver driver;
  open_trace(driver.app, 0, write_stalled_run(scratch, {.steps = 10}));
  driver.settle();
  ASSERT_NE(driver.app.document(), nullptr) << driver.app.sides[0].failure.what;
  for (const PanelName& name : kPanelNames) {
    driver.app.bring_to_front = name.panel;
    for (int i = 0; i < 3; ++i) driver.frame();
    EXPECT_TRUE(window_is_in_front(name.title)) << name.title;
  }
  EXPECT_GT(driver.app.sides[0].timeline.items_drawn, 20U);
}

TEST(Window, OpensATraceThroughTheDialog) {
  const Scratch scratch;
  const std::string path = write_stalled_run(scratch, {.steps = 6});
  Driver driver;
  driver.play([&](ImGuiTestContext* ui, App& app) {
    ui->ItemClick("//Timeline/Open a trace");
    ui->Yield(3);
    ui->KeyCharsAppend(path.c_str());
    ui->KeyPress(ImGuiKey_Enter);
    IM_CHECK(wait_until(ui, [&] { return !is_busy(app); }));
    IM_CHECK(app.document() != nullptr);
    IM_CHECK_EQ(app.document()->timeline.ranks.size(), 2U);
  });
}

TEST(Window, KeysAndWheelMoveTheTimeline) {
  const Scratch scratch;
  Driver driver;
  open_trace(driver.app, 0, write_stalled_run(scratch, {.steps = 10}));
  driver.settle();
  driver.play([](ImGuiTestContext* ui, App& app) {
    View& view = app.sides[0].timeline.view;
    ui->WindowFocus("//Timeline");
    const double whole = view.shown.length();
    ui->KeyPress(ImGuiKey_W);
    IM_CHECK_LT(view.shown.length(), whole * 0.9);
    const double begin = view.shown.begin, length = view.shown.length();
    ui->KeyPress(ImGuiKey_D);
    IM_CHECK_GT(view.shown.begin, begin);
    ui->KeyPress(ImGuiKey_A);
    IM_CHECK(std::abs(view.shown.begin - begin) < length * 1e-6);
    ui->KeyPress(ImGuiKey_S);
    IM_CHECK_GT(view.shown.length(), length);
    ui->KeyPress(ImGuiKey_F);
    IM_CHECK(std::abs(view.shown.length() - whole) < 1);

    // The wheel keeps the time under the cursor where it is.
    const ImGuiTestItemInfo canvas = ui->ItemInfo("//Timeline/**/canvas");
    IM_CHECK(canvas.ID != 0);
    const float gutter = gutter_width(app.document()->tracks);
    ui->MouseMoveToPos({canvas.RectClipped.Min.x + gutter + 300, canvas.RectClipped.Min.y + 60});
    const float width = canvas.RectFull.GetWidth() - gutter;
    const double time = to_time(view, 300, width);
    ui->MouseWheelY(2);
    IM_CHECK_LT(view.shown.length(), whole * 0.7);
    IM_CHECK(std::abs(to_time(view, 300, width) - time) < whole * 1e-3);

    // Dragging moves the content with the mouse.
    const double before = view.shown.begin;
    ui->MouseDragWithDelta({-100, 0});
    IM_CHECK_GT(view.shown.begin, before);
  });
}

TEST(Window, AClickSelectsASliceAndTheDetailsTellOfIt) {
  const Scratch scratch;
  Driver driver;
  open_trace(driver.app, 0, write_stalled_run(scratch, {.steps = 10}));
  driver.settle();
  driver.play([](ImGuiTestContext* ui, App& app) {
    const ImGuiTestItemInfo canvas = ui->ItemInfo("//Timeline/**/canvas");
    // The first line below the first header holds rank 0's steps.
    ui->MouseMoveToPos({canvas.RectClipped.Min.x + 150 + 420, canvas.RectClipped.Min.y + 24 + 9});
    ui->MouseClick();
    const SliceRef selected = app.sides[0].timeline.selected;
    IM_CHECK_EQ(selected.track, 0);
    ui->Yield(3);
    IM_CHECK(window_is_in_front("Details"));
    ui->KeyPress(ImGuiKey_Period);
    IM_CHECK_EQ(app.sides[0].timeline.selected.slice, selected.slice + 1);
    ui->KeyPress(ImGuiKey_Z);
    const timeline::Step& step = app.document()->timeline.ranks[0].steps[selected.slice + 1];
    IM_CHECK_LT(app.sides[0].timeline.view.shown.length(), 1.6 * static_cast<double>(step.end - step.start));
  });
}

TEST(Window, ClickingAFindingsEvidenceFramesItInTheTimeline) {
  const Scratch scratch;
  Driver driver;
  open_trace(driver.app, 0, write_stalled_run(scratch));
  driver.settle();
  const auto& findings = driver.app.document()->analysis().findings;
  ASSERT_FALSE(findings.empty());
  ASSERT_EQ(findings[0].rule, "loader-stall");
  driver.play([](ImGuiTestContext* ui, App& app) {
    const detect::Evidence evidence = app.document()->analysis().findings[0].evidence[0];
    ui->ItemClick("//Findings/**/##evidence");
    const TimelineState& state = app.sides[0].timeline;
    IM_CHECK(state.mark.has_value());
    IM_CHECK_EQ(state.mark->rank, evidence.rank);
    IM_CHECK_LE(state.view.shown.begin, static_cast<double>(evidence.start));
    IM_CHECK_GE(state.view.shown.end, static_cast<double>(evidence.end));
    IM_CHECK_LT(state.view.shown.length(), 4.0 * static_cast<double>(evidence.end - evidence.start));
    IM_CHECK_GE(state.selected.track, 0);
  });
}

TEST(Window, FoldingARankHidesItsLines) {
  const Scratch scratch;
  Driver driver;
  open_trace(driver.app, 0, write_stalled_run(scratch, {.steps = 6}));
  driver.settle();
  driver.play([](ImGuiTestContext* ui, App& app) {
    const size_t before = app.sides[0].timeline.layout.tracks.size();
    const ImGuiTestItemInfo canvas = ui->ItemInfo("//Timeline/**/canvas");
    ui->MouseMoveToPos({canvas.RectClipped.Min.x + 30, canvas.RectClipped.Min.y + 10});
    ui->MouseClick();
    ui->Yield();
    IM_CHECK_LT(app.sides[0].timeline.layout.tracks.size(), before);
    ui->MouseClick();
    ui->Yield();
    IM_CHECK_EQ(app.sides[0].timeline.layout.tracks.size(), before);
  });
}

TEST(Window, ApplyAndRerunEndsSideBySideWithAVerdict) {
  const Scratch scratch;
  Driver driver;
  driver.app.settings.taut_program = stand_in();
  open_trace(driver.app, 0, write_stalled_run(scratch));
  driver.settle();
  driver.play([&](ImGuiTestContext* ui, App& app) {
    ui->ItemClick("//Findings/Apply and rerun");
    IM_CHECK(app.rerun.busy());
    ui->Yield(3);
    IM_CHECK(window_is_in_front("Run"));
    IM_CHECK(wait_until(ui, [&] { return !is_busy(app); }));
    IM_CHECK_STR_EQ(app.rerun.failure().what.c_str(), "");
    IM_CHECK(app.rerun.outcome() == Rerun::Outcome::done);
    IM_CHECK_EQ(app.rerun.steps().size(), 40U);
    IM_CHECK_EQ(app.rerun.progress(), 1.0);
    ui->Yield(3);
    IM_CHECK(window_is_in_front("Compare"));
    IM_CHECK(app.sides[1].document != nullptr);
    IM_CHECK(app.comparison.has_value());
    IM_CHECK(app.comparison->judgement.verdict == tune::Verdict::faster);
    IM_CHECK_GT(app.comparison->judgement.speedup, 1.5);
    // Both timelines show the same stretch of time.
    IM_CHECK(std::abs(app.sides[0].timeline.view.shown.length() - app.sides[1].timeline.view.shown.length()) < 1);
    ui->ItemClick("//##MainMenuBar/**/after");
    IM_CHECK_EQ(app.shown, 1U);
    ui->ItemClick("//Compare/Continue from the second run");
    IM_CHECK_STR_EQ(app.sides[0].document->name.c_str(), "after.db");
    IM_CHECK(app.sides[1].document == nullptr);
  });
  const auto patched = config::read_json_file(scratch / "after.json");
  EXPECT_GT(patched["data"]["num_workers"].get<int>(), 1);
}

TEST(Window, ARerunThatFailsSaysWhyAndCanBeTriedAgain) {
  const Scratch scratch;
  Driver driver;
  driver.app.settings.taut_program = stand_in();
  open_trace(driver.app, 0, write_stalled_run(scratch, {}, 13));
  driver.settle();
  driver.play([&](ImGuiTestContext* ui, App& app) {
    ui->ItemClick("//Findings/Apply and rerun");
    IM_CHECK(wait_until(ui, [&] { return !is_busy(app); }));
    IM_CHECK(app.rerun.outcome() == Rerun::Outcome::failed);
    IM_CHECK_STR_EQ(app.rerun.failure().what.c_str(), "rank 1 exited with code 1 at step 1");
    IM_CHECK_STR_EQ(app.rerun.failure().hint.c_str(), "look at its output");
    IM_CHECK(app.sides[1].document == nullptr);
    app.bring_to_front = Panel::findings;
    ui->Yield(3);
    ui->ItemClick("//Findings/Apply and rerun");
    IM_CHECK(wait_until(ui, [&] { return !is_busy(app); }));
    IM_CHECK(app.rerun.plan().config.find("after-2.json") != std::string::npos);
  });
}

TEST(Window, AbortEndsTheRerun) {
  const Scratch scratch;
  Driver driver;
  driver.app.settings.taut_program = stand_in();
  open_trace(driver.app, 0, write_stalled_run(scratch, {}, 14));
  driver.settle();
  driver.play([&](ImGuiTestContext* ui, App& app) {
    ui->ItemClick("//Findings/Apply and rerun");
    IM_CHECK(wait_until(ui, [&] { return !app.rerun.steps().empty(); }));
    ui->ItemClick("//Run/Abort");
    IM_CHECK(wait_until(ui, [&] { return !app.rerun.busy(); }));
    IM_CHECK(app.rerun.outcome() == Rerun::Outcome::aborted);
  });
}

TEST(Window, UntickingTheSuggestionLeavesNothingToApply) {
  const Scratch scratch;
  Driver driver;
  open_trace(driver.app, 0, write_stalled_run(scratch));
  driver.settle();
  driver.play([&](ImGuiTestContext* ui, App& app) {
    IM_CHECK_EQ(app.chosen.size(), 1U);
    ui->ItemClick("//Findings/**/##apply");
    IM_CHECK(app.chosen.empty());
    IM_CHECK((ui->ItemInfo("//Findings/Apply and rerun").ItemFlags & ImGuiItemFlags_Disabled) != 0);
  });
}

TEST(Window, EveryCommandOfTheMenusCanBeReached) {
  const Scratch scratch;
  Driver driver;
  open_trace(driver.app, 0, write_stalled_run(scratch, {.steps = 6}));
  driver.settle();
  driver.play([](ImGuiTestContext* ui, App& app) {
    ui->KeyPress(ImGuiKey_F1);
    ui->Yield(2);
    IM_CHECK(ui->WindowInfo("//Keys and mouse").Window != nullptr);
    ui->ItemClick("//Keys and mouse/Close");
    frame(app.sides[0].timeline.view, 0, 1e6);
    const double length = app.sides[0].timeline.view.shown.length();
    ui->SetRef("##MainMenuBar");
    ui->MenuClick("View/Fit");
    IM_CHECK_GT(app.sides[0].timeline.view.shown.length(), length);
    ui->MenuClick("File/Quit");
    IM_CHECK(app.quit);
  });
}

TEST(Window, SmallWindowsDoNotBreakIt) {
  const Scratch scratch;
  const std::string path = write_stalled_run(scratch, {.steps = 6});
  Driver driver(330, 320);
  open_trace(driver.app, 0, path);
  driver.settle();
  for (const PanelName& name : kPanelNames) {
    driver.app.bring_to_front = name.panel;
    for (int i = 0; i < 3; ++i) driver.frame();
  }
  EXPECT_NE(driver.app.document(), nullptr);
}

}  // namespace
}  // namespace taut::gui
