#include "tests/gui/window_driver.h"

#include <gtest/gtest.h>
#include <imgui_impl_null.h>
#include <implot.h>

#include <chrono>
#include <thread>

#include "gui/app/frame.h"
#include "gui/app/theme.h"

namespace taut::gui {
namespace {

void give_other_threads_time() {
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

Driver::Driver(float width, float height) : size_(width, height) {
  ImGui::CreateContext();
  ImPlot::CreateContext();
  ImGui::GetIO().IniFilename = nullptr;
  ImGui::GetIO().ConfigFlags |= ImGuiConfigFlags_DockingEnable;
  ImGui_ImplNull_Init();
  apply_theme();
  engine_ = ImGuiTestEngine_CreateContext();
  ImGuiTestEngineIO& io = ImGuiTestEngine_GetIO(engine_);
  io.ConfigRunSpeed = ImGuiTestRunSpeed_Fast;
  io.ConfigNoThrottle = true;
  io.ConfigWatchdogWarning = io.ConfigWatchdogKillTest = io.ConfigWatchdogKillApp = 1e6F;
  io.ConfigVerboseLevel = ImGuiTestVerboseLevel_Error;
  io.ConfigVerboseLevelOnError = ImGuiTestVerboseLevel_Info;
  io.ConfigLogToTTY = true;
  ImGuiTestEngine_Start(engine_, ImGui::GetCurrentContext());
}

Driver::~Driver() {
  ImGuiTestEngine_Stop(engine_);
  ImGui_ImplNull_Shutdown();
  ImPlot::DestroyContext();
  ImGui::DestroyContext();
  ImGuiTestEngine_DestroyContext(engine_);
}

void Driver::frame() {
  ImGui_ImplNull_NewFrame();
  ImGui::GetIO().DisplaySize = size_;
  ImGui::NewFrame();
  draw_frame(app);
  ImGui::Render();
  ImGuiTestEngine_PostSwap(engine_);
}

void Driver::settle() {
  frame();
  while (is_busy(app)) {
    give_other_threads_time();
    frame();
  }
  for (int i = 0; i < 4; ++i) frame();
}

bool Driver::play(Script script) {
  script_ = std::move(script);
  ImGuiTest* test = ImGuiTestEngine_RegisterTest(engine_, "window", "script", __FILE__, __LINE__);
  test->UserData = this;
  test->TestFunc = [](ImGuiTestContext* ui) {
    auto* driver = static_cast<Driver*>(ui->Test->UserData);
    driver->script_(ui, driver->app);
  };
  ImGuiTestEngine_QueueTest(engine_, test);
  while (!ImGuiTestEngine_IsTestQueueEmpty(engine_)) frame();
  const bool passed = test->Output.Status == ImGuiTestStatus_Success;
  EXPECT_TRUE(passed) << "a check of the script failed; its log is above";
  ImGuiTestEngine_UnregisterTest(engine_, test);
  return passed;
}

bool wait_until(ImGuiTestContext* ui, const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(200);
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    give_other_threads_time();
    ui->Yield();
  }
  return true;
}

}  // namespace taut::gui
