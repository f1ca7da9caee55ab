#include "gui/app/frame.h"

#include <imgui.h>
#include <imgui_internal.h>
#include <imgui_stdlib.h>

#include "analyzer/report/escape.h"
#include "gui/app/commands.h"
#include "gui/app/theme.h"
#include "gui/panels/panels.h"

namespace taut::gui {
namespace {

struct PanelWindow {
  Panel panel;
  void (*draw)(App& app);
  ImGuiWindowFlags flags;
};
constexpr PanelWindow kWindows[] = {
    {Panel::timeline, draw_timeline_panel, ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NoScrollWithMouse},
    {Panel::compare, draw_compare_panel, ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NoScrollWithMouse},
    {Panel::findings, draw_findings_panel, ImGuiWindowFlags_None},
    {Panel::run, draw_run_panel, ImGuiWindowFlags_None},
    {Panel::breakdown, draw_breakdown_panel, ImGuiWindowFlags_None},
    {Panel::steps, draw_steps_panel, ImGuiWindowFlags_NoScrollbar},
    {Panel::details, draw_details_panel, ImGuiWindowFlags_None},
};

// Timeline and Compare in the middle, Findings and Run on the right, the rest below.
void build_layout(ImGuiID dock, ImVec2 size) {
  ImGui::DockBuilderRemoveNode(dock);
  ImGui::DockBuilderAddNode(dock, ImGuiDockNodeFlags_DockSpace);
  ImGui::DockBuilderSetNodeSize(dock, size);
  ImGuiID middle = dock;
  const ImGuiID right = ImGui::DockBuilderSplitNode(middle, ImGuiDir_Right, 0.29F, nullptr, &middle);
  ImGuiID below = ImGui::DockBuilderSplitNode(middle, ImGuiDir_Down, 0.30F, nullptr, &middle);
  const ImGuiID below_left = ImGui::DockBuilderSplitNode(below, ImGuiDir_Left, 0.44F, nullptr, &below);
  const ImGuiID below_right = ImGui::DockBuilderSplitNode(below, ImGuiDir_Right, 0.42F, nullptr, &below);
  const auto dock_window = [](Panel panel, ImGuiID node) { ImGui::DockBuilderDockWindow(panel_title(panel), node); };
  dock_window(Panel::timeline, middle);
  dock_window(Panel::compare, middle);
  dock_window(Panel::findings, right);
  dock_window(Panel::run, right);
  dock_window(Panel::breakdown, below_left);
  dock_window(Panel::steps, below);
  dock_window(Panel::details, below_right);
  ImGui::DockBuilderFinish(dock);
}

void menu(App& app, Menu which, const char* title) {
  if (!ImGui::BeginMenu(title)) return;
  for (const Command& command : commands()) {
    if (command.menu != which) continue;
    const char* keys = command.keys ? ImGui::GetKeyChordName(command.keys) : nullptr;
    if (ImGui::MenuItem(command.title, keys, false, command.enabled(app))) command.run(app);
  }
  ImGui::EndMenu();
}

// Which of the two runs the panels show.
void side_switch(App& app) {
  for (size_t side = 0; side < 2; ++side) {
    const bool active = app.shown == side;
    ImGui::PushStyleColor(ImGuiCol_Button, active ? with_alpha(kAccent, 0.3F) : IM_COL32(0, 0, 0, 0));
    if (ImGui::SmallButton(side == 0 ? "before" : "after")) app.shown = side;
    ImGui::PopStyleColor();
  }
}

void draw_menu_bar(App& app) {
  if (!ImGui::BeginMainMenuBar()) return;
  colored_text(kAccent, "taut");
  menu(app, Menu::file, "File");
  menu(app, Menu::view, "View");
  menu(app, Menu::run, "Run");
  if (const Document* document = app.document()) {
    ImGui::Dummy({18, 0});
    ImGui::TextUnformatted(report::printable(document->name).c_str());
    std::string facts =
        std::to_string(document->timeline.ranks.size()) + (document->timeline.ranks.size() == 1 ? " rank" : " ranks");
    if (!document->mesh.empty()) facts += "  ·  " + document->mesh;
    colored_text(kTextDim, facts);
    draw_quality_badge(*document);
    if (app.sides[1].document) side_switch(app);
  }
  ImGui::EndMainMenuBar();
}

void draw_open_dialog(App& app) {
  constexpr const char* kTitle = "Open";
  if (app.open_dialog) {
    ImGui::OpenPopup(kTitle);
    app.open_dialog = false;
  }
  ImGui::SetNextWindowPos(ImGui::GetMainViewport()->GetCenter(), ImGuiCond_Appearing, {0.5F, 0.5F});
  if (!ImGui::BeginPopupModal(kTitle, nullptr, ImGuiWindowFlags_AlwaysAutoResize)) return;
  colored_text(kTextDim, app.open_side == 0 ? "Path of a trace (.db) or an Nsight Systems export (.sqlite)"
                                            : "Path of the trace to set beside the first");
  if (ImGui::IsWindowAppearing()) ImGui::SetKeyboardFocusHere();
  ImGui::SetNextItemWidth(560);
  const bool entered = ImGui::InputText("##path", &app.open_path, ImGuiInputTextFlags_EnterReturnsTrue);
  ImGui::BeginDisabled(app.open_path.empty());
  const bool pressed = ImGui::Button("Open", {110, 0});
  ImGui::EndDisabled();
  ImGui::SameLine();
  if (ImGui::Button("Cancel", {110, 0}) || ImGui::IsKeyPressed(ImGuiKey_Escape)) ImGui::CloseCurrentPopup();
  if ((entered || pressed) && !app.open_path.empty()) {
    open_trace(app, app.open_side, app.open_path);
    ImGui::CloseCurrentPopup();
  }
  ImGui::EndPopup();
}

void draw_help_dialog(App& app) {
  constexpr const char* kTitle = "Keys and mouse";
  if (app.help_dialog) {
    ImGui::OpenPopup(kTitle);
    app.help_dialog = false;
  }
  ImGui::SetNextWindowPos(ImGui::GetMainViewport()->GetCenter(), ImGuiCond_Appearing, {0.5F, 0.5F});
  ImGui::SetNextWindowSize({520, 0});
  if (!ImGui::BeginPopupModal(kTitle, nullptr, ImGuiWindowFlags_NoResize)) return;
  if (ImGui::BeginTable("keys", 2, ImGuiTableFlags_SizingFixedFit)) {
    ImGui::TableSetupColumn("key");
    ImGui::TableSetupColumn("what", ImGuiTableColumnFlags_WidthStretch);
    key_value_row("W S", "zoom in and out");
    key_value_row("A D, arrows", "move to earlier and later times");
    key_value_row("wheel", "zoom at the cursor (Ctrl: finer)");
    key_value_row("Shift+wheel", "scroll, as does the wheel over the names");
    key_value_row("drag", "move");
    key_value_row("middle or Shift drag", "zoom to the range");
    key_value_row("click, double click", "select, frame a slice");
    key_value_row("click on a name", "fold or unfold it");
    for (const Command& command : commands()) {
      if (command.keys) key_value_row(ImGui::GetKeyChordName(command.keys), command.title);
    }
    ImGui::EndTable();
  }
  if (ImGui::Button("Close", {110, 0}) || ImGui::IsKeyPressed(ImGuiKey_Escape)) ImGui::CloseCurrentPopup();
  ImGui::EndPopup();
}

}  // namespace

void draw_frame(App& app) {
  update(app);
  run_pressed_commands(app);
  draw_menu_bar(app);
  const ImGuiID dock = ImGui::GetID("dock");
  const ImGuiViewport* viewport = ImGui::GetMainViewport();
  if (!ImGui::DockBuilderGetNode(dock)) build_layout(dock, viewport->WorkSize);
  ImGui::DockSpaceOverViewport(dock, viewport, ImGuiDockNodeFlags_NoWindowMenuButton);
  for (const PanelWindow& window : kWindows) {
    if (ImGui::Begin(panel_title(window.panel), nullptr, window.flags | ImGuiWindowFlags_NoCollapse)) window.draw(app);
    ImGui::End();
  }
  // Windows that appear take the front of their place one after the other, so the first frames put the right ones
  // there.
  ++app.frames_drawn;
  if (app.frames_drawn == 2) {
    ImGui::SetWindowFocus(panel_title(Panel::findings));
  } else if (app.frames_drawn == 3) {
    ImGui::SetWindowFocus(panel_title(Panel::timeline));
  } else if (app.frames_drawn > 3 && app.bring_to_front) {
    ImGui::SetWindowFocus(panel_title(*app.bring_to_front));
    app.bring_to_front.reset();
  }
  draw_open_dialog(app);
  draw_help_dialog(app);
}

}  // namespace taut::gui
