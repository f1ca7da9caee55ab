// The whole window without a screen: the same frames as on one, drawn by Dear ImGui's null backend, with mouse and keys
// moved by the test engine.
//
//   Driver driver;
//   open_trace(driver.app, 0, path);
//   driver.play([](ImGuiTestContext* ui, App& app) { ui->ItemClick("//Findings/**/Apply and rerun"); IM_CHECK(…); });
#pragma once

#include <imgui.h>
#include <imgui_te_context.h>
#include <imgui_te_engine.h>

#include <functional>

#include "gui/app/app.h"

namespace taut::gui {

class Driver {
 public:
  explicit Driver(float width = 1600, float height = 900);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  /// Draws frames until `script` has ended; false (and a gtest failure) when one of its IM_CHECKs failed.
  using Script = std::function<void(ImGuiTestContext* ui, App& app)>;
  bool play(Script script);
  /// Draws one frame.
  void frame();
  /// Draws frames until no other thread works any more.
  void settle();

  App app;

 private:
  ImVec2 size_;
  ImGuiTestEngine* engine_ = nullptr;
  Script script_;
};

/// From within a script: lets frames pass until `done`, at most 200 seconds.
bool wait_until(ImGuiTestContext* ui, const std::function<bool()>& done);

}  // namespace taut::gui
