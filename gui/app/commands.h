// Everything that has a key or a menu entry, in one table: adding one is one line in commands.cpp.
#pragma once

#include <imgui.h>

#include <span>

#include "gui/app/app.h"

namespace taut::gui {

enum class Menu : uint8_t { file, view, run };

struct Command {
  Menu menu;
  const char* title;
  ImGuiKeyChord keys;  // 0 = none
  void (*run)(App& app);
  bool (*enabled)(const App& app);
};

std::span<const Command> commands();

/// Runs the commands whose keys were pressed in this frame. Plain letters are left to a text field that has the focus.
void run_pressed_commands(App& app);

}  // namespace taut::gui
