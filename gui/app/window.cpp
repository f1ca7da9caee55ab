#include "gui/app/window.h"

#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>
#include <imgui.h>
#include <imgui_impl_glfw.h>
#include <imgui_impl_opengl3.h>
#include <implot.h>

#include <algorithm>

#include "gui/app/frame.h"
#include "gui/app/theme.h"
#include "taut.h"

namespace taut::gui {
namespace {

// The few OpenGL functions used here, found at run time, so that nothing links libGL.
constexpr unsigned kColorBufferBit = 0x4000, kRgb = 0x1907, kUnsignedByte = 0x1401, kPackAlignment = 0x0D05;
struct Gl {
  void (*viewport)(int, int, int, int);
  void (*clear_color)(float, float, float, float);
  void (*clear)(unsigned);
  void (*finish)();
  void (*pixel_store)(unsigned, int);
  void (*read_pixels)(int, int, int, int, unsigned, unsigned, void*);
};

template <class Function>
void find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(glfwGetProcAddress(name));
  if (!function)
    throw Error(std::string("OpenGL lacks ") + name, "update the graphics driver, or install libgl1-mesa-dri");
}

Gl load_gl() {
  Gl gl{};
  find(gl.viewport, "glViewport");
  find(gl.clear_color, "glClearColor");
  find(gl.clear, "glClear");
  find(gl.finish, "glFinish");
  find(gl.pixel_store, "glPixelStorei");
  find(gl.read_pixels, "glReadPixels");
  return gl;
}

std::string glfw_reason() {
  const char* text = nullptr;
  glfwGetError(&text);
  return text ? text : "no reason given";
}

GLFWwindow* create(Where where, int width, int height) {
  glfwInitHint(GLFW_PLATFORM, where == Where::memory ? GLFW_PLATFORM_NULL : GLFW_ANY_PLATFORM);
  if (!glfwInit()) {
    throw Error("no window can be opened: " + glfw_reason(), "is there a display? Without one: --screenshot FILE.png");
  }
  glfwWindowHint(GLFW_CONTEXT_VERSION_MAJOR, 3);
  glfwWindowHint(GLFW_CONTEXT_VERSION_MINOR, 3);
  glfwWindowHint(GLFW_OPENGL_PROFILE, GLFW_OPENGL_CORE_PROFILE);
  if (where == Where::memory) {
    glfwWindowHint(GLFW_SCALE_FRAMEBUFFER, GLFW_FALSE);
    for (const int api : {GLFW_EGL_CONTEXT_API, GLFW_OSMESA_CONTEXT_API}) {
      glfwWindowHint(GLFW_CONTEXT_CREATION_API, api);
      if (GLFWwindow* window = glfwCreateWindow(width, height, "Taut", nullptr, nullptr)) return window;
    }
  } else if (GLFWwindow* window = glfwCreateWindow(width, height, "Taut", nullptr, nullptr)) {
    return window;
  }
  const std::string reason = glfw_reason();
  glfwTerminate();
  throw Error("no OpenGL 3.3 to draw with: " + reason,
              "install libegl1 and libgl1-mesa-dri (drawing without a graphics card)");
}

void on_drop(GLFWwindow* window, int count, const char** paths) {
  App& app = *static_cast<App*>(glfwGetWindowUserPointer(window));
  if (count == 0) return;
  const bool beside = count == 1 && app.sides[0].document && app.open_side == 1;
  open_trace(app, beside ? 1 : 0, paths[0]);
  if (count > 1) open_trace(app, 1, paths[1]);
}

}  // namespace

Window::Window(Where where, int width, int height, App& app) {
  window_ = create(where, width, height);
  glfwMakeContextCurrent(window_);
  if (where == Where::screen) glfwSwapInterval(1);
  glfwSetWindowUserPointer(window_, &app);
  glfwSetDropCallback(window_, on_drop);
  IMGUI_CHECKVERSION();
  ImGui::CreateContext();
  ImPlot::CreateContext();
  ImGuiIO& io = ImGui::GetIO();
  io.ConfigFlags |= ImGuiConfigFlags_DockingEnable;
  io.IniFilename = nullptr;  // every start looks the same, on screen and in a picture
  apply_theme();
  float scale = 1;
  if (where == Where::screen) glfwGetWindowContentScale(window_, &scale, nullptr);
  if (scale > 1) {
    ImGui::GetStyle().ScaleAllSizes(scale);
    ImGui::GetStyle().FontScaleDpi = scale;
  }
  ImGui_ImplGlfw_InitForOpenGL(window_, where == Where::screen);
  ImGui_ImplOpenGL3_Init("#version 330 core");
}

Window::~Window() {
  ImGui_ImplOpenGL3_Shutdown();
  ImGui_ImplGlfw_Shutdown();
  ImPlot::DestroyContext();
  ImGui::DestroyContext();
  glfwDestroyWindow(window_);
  glfwTerminate();
}

void Window::draw(App& app) {
  static const Gl gl = load_gl();
  ImGui_ImplOpenGL3_NewFrame();
  ImGui_ImplGlfw_NewFrame();
  ImGui::NewFrame();
  draw_frame(app);
  ImGui::Render();
  int width = 0, height = 0;
  glfwGetFramebufferSize(window_, &width, &height);
  gl.viewport(0, 0, width, height);
  gl.clear_color(0.07F, 0.08F, 0.1F, 1);
  gl.clear(kColorBufferBit);
  ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
  // A window in memory is read from its back buffer, which a swap would leave undefined.
  if (glfwGetPlatform() != GLFW_PLATFORM_NULL) glfwSwapBuffers(window_);
}

Picture Window::picture() const {
  const Gl gl = load_gl();
  Picture picture;
  glfwGetFramebufferSize(window_, &picture.width, &picture.height);
  const size_t stride = static_cast<size_t>(picture.width) * 3;
  std::vector<uint8_t> upside_down(stride * static_cast<size_t>(picture.height));
  gl.finish();
  gl.pixel_store(kPackAlignment, 1);
  gl.read_pixels(0, 0, picture.width, picture.height, kRgb, kUnsignedByte, upside_down.data());
  picture.pixels.reserve(upside_down.size());
  for (int y = picture.height - 1; y >= 0; --y) {
    const auto row = upside_down.begin() + static_cast<std::ptrdiff_t>(stride) * y;
    picture.pixels.insert(picture.pixels.end(), row, row + static_cast<std::ptrdiff_t>(stride));
  }
  return picture;
}

void Window::run(App& app) {
  constexpr int kFramesAfterEvent = 3;  // tooltips, tabs and scrolling need a frame or two to settle
  int frames_due = kFramesAfterEvent;
  while (!glfwWindowShouldClose(window_) && !app.quit) {
    if (frames_due > 0) {
      glfwPollEvents();
      --frames_due;
    } else {
      // Text cursors blink and progress bars move; nothing else changes without an event.
      const double timeout_s = is_busy(app) ? 0.1 : ImGui::GetIO().WantTextInput ? 0.4 : 5;
      glfwWaitEventsTimeout(timeout_s);
      frames_due = kFramesAfterEvent - 1;
    }
    if (glfwGetWindowAttrib(window_, GLFW_ICONIFIED)) continue;
    draw(app);
  }
}

void wake_window() {
  glfwPostEmptyEvent();
}

}  // namespace taut::gui
