// An OpenGL window on the screen, or one in memory that needs no display: GLFW, Dear ImGui and ImPlot set up and torn
// down.
#pragma once

#include <memory>
#include <string>

#include "gui/app/app.h"
#include "gui/app/png.h"

struct GLFWwindow;

namespace taut::gui {

enum class Where { screen, memory };

class Window {
 public:
  /// Throws taut::Error when there is no display (Where::screen) or no OpenGL to draw with.
  Window(Where where, int width, int height, App& app);
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  /// Draws one frame and shows it.
  void draw(App& app);
  /// The last frame drawn. Where::memory only.
  Picture picture() const;
  /// Draws whenever something happens, until the user closes the window; idle otherwise.
  void run(App& app);

 private:
  GLFWwindow* window_ = nullptr;
};

/// Lets another thread's work wake a window that waits for events.
void wake_window();

}  // namespace taut::gui
