// The window's libraries work on a machine without a screen: Dear ImGui lays out a frame on its null backend, the test
// engine clicks a button by name, and GLFW opens a window on its null platform.
#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>
#include <gtest/gtest.h>
#include <imgui.h>
#include <imgui_impl_null.h>
#include <imgui_te_context.h>
#include <imgui_te_engine.h>
#include <implot.h>

namespace {

TEST(Imgui, TestEngineClicksAButtonWithoutAScreen) {
  ImGui::CreateContext();
  ImPlot::CreateContext();
  ImGui::GetIO().IniFilename = nullptr;
  ImGui_ImplNull_Init();
  ImGuiTestEngine* engine = ImGuiTestEngine_CreateContext();
  ImGuiTestEngineIO& io = ImGuiTestEngine_GetIO(engine);
  io.ConfigRunSpeed = ImGuiTestRunSpeed_Fast;
  io.ConfigNoThrottle = true;
  ImGuiTestEngine_Start(engine, ImGui::GetCurrentContext());

  static int clicks = 0;
  static bool plotted = false;
  clicks = 0;
  ImGuiTest* test = IM_REGISTER_TEST(engine, "smoke", "click");
  test->GuiFunc = [](ImGuiTestContext*) {
    ImGui::Begin("Window", nullptr, ImGuiWindowFlags_AlwaysAutoResize);
    if (ImGui::Button("Press")) clicks++;
    const double step_ms[] = {3, 1, 2};
    if (ImPlot::BeginPlot("Steps")) {
      ImPlot::PlotLine("step_ms", step_ms, 3);
      ImPlot::EndPlot();
      plotted = true;
    }
    ImGui::End();
  };
  test->TestFunc = [](ImGuiTestContext* context) { context->ItemClick("Window/Press"); };
  ImGuiTestEngine_QueueTest(engine, test);

  for (int frame = 0; frame < 1000 && !ImGuiTestEngine_IsTestQueueEmpty(engine); frame++) {
    ImGui_ImplNull_NewFrame();
    ImGui::NewFrame();
    ImGui::Render();
    ImGuiTestEngine_PostSwap(engine);
  }
  EXPECT_TRUE(ImGuiTestEngine_IsTestQueueEmpty(engine));
  EXPECT_EQ(test->Output.Status, ImGuiTestStatus_Success);
  EXPECT_EQ(clicks, 1);
  EXPECT_TRUE(plotted);

  ImGuiTestEngine_Stop(engine);
  ImGui_ImplNull_Shutdown();
  ImPlot::DestroyContext();
  ImGui::DestroyContext();
  ImGuiTestEngine_DestroyContext(engine);
}

TEST(Glfw, OpensAWindowOnTheNullPlatform) {
  glfwInitHint(GLFW_PLATFORM, GLFW_PLATFORM_NULL);
  ASSERT_EQ(glfwInit(), GLFW_TRUE);
  glfwWindowHint(GLFW_CLIENT_API, GLFW_NO_API);
  GLFWwindow* window = glfwCreateWindow(320, 200, "taut", nullptr, nullptr);
  ASSERT_NE(window, nullptr);
  int width = 0, height = 0;
  glfwGetWindowSize(window, &width, &height);
  EXPECT_EQ(width, 320);
  EXPECT_EQ(height, 200);
  glfwTerminate();
}

}  // namespace
