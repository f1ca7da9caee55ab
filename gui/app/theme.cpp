#include "gui/app/theme.h"

#include <imgui_internal.h>
#include <implot.h>

#include <algorithm>

#include "gui/app/font.h"

namespace taut::gui {
namespace {

using metrics::Category;
using timeline::Kind;

ImVec4 rgb(int r, int g, int b, float a = 1) {
  return {static_cast<float>(r) / 255, static_cast<float>(g) / 255, static_cast<float>(b) / 255, a};
}

void set_colors(ImVec4* c) {
  c[ImGuiCol_Text] = rgb(222, 228, 238);
  c[ImGuiCol_TextDisabled] = rgb(126, 136, 154);
  c[ImGuiCol_WindowBg] = rgb(24, 28, 36);
  c[ImGuiCol_ChildBg] = rgb(24, 28, 36, 0);
  c[ImGuiCol_PopupBg] = rgb(30, 35, 45, 0.98F);
  c[ImGuiCol_MenuBarBg] = rgb(18, 21, 27);
  c[ImGuiCol_Border] = rgb(48, 55, 69);
  c[ImGuiCol_FrameBg] = rgb(36, 42, 54);
  c[ImGuiCol_FrameBgHovered] = rgb(46, 54, 69);
  c[ImGuiCol_FrameBgActive] = rgb(54, 64, 82);
  c[ImGuiCol_TitleBg] = c[ImGuiCol_TitleBgCollapsed] = rgb(18, 21, 27);
  c[ImGuiCol_TitleBgActive] = rgb(18, 21, 27);
  c[ImGuiCol_Tab] = rgb(18, 21, 27);
  c[ImGuiCol_TabHovered] = rgb(46, 54, 69);
  c[ImGuiCol_TabSelected] = c[ImGuiCol_TabDimmedSelected] = rgb(24, 28, 36);
  c[ImGuiCol_TabSelectedOverline] = rgb(86, 180, 233);
  c[ImGuiCol_TabDimmedSelectedOverline] = rgb(60, 70, 90);
  c[ImGuiCol_TabDimmed] = rgb(18, 21, 27);
  c[ImGuiCol_Button] = rgb(44, 52, 67);
  c[ImGuiCol_ButtonHovered] = rgb(56, 67, 88);
  c[ImGuiCol_ButtonActive] = rgb(66, 80, 106);
  c[ImGuiCol_Header] = rgb(40, 47, 60);
  c[ImGuiCol_HeaderHovered] = rgb(48, 57, 73);
  c[ImGuiCol_HeaderActive] = rgb(56, 67, 88);
  c[ImGuiCol_Separator] = rgb(42, 48, 61);
  c[ImGuiCol_SeparatorHovered] = c[ImGuiCol_SeparatorActive] = rgb(86, 180, 233);
  c[ImGuiCol_CheckMark] = rgb(86, 180, 233);
  c[ImGuiCol_ScrollbarBg] = rgb(20, 23, 30, 0);
  c[ImGuiCol_ScrollbarGrab] = rgb(58, 67, 84);
  c[ImGuiCol_PlotHistogram] = rgb(86, 180, 233);
  c[ImGuiCol_TableHeaderBg] = rgb(30, 35, 45);
  c[ImGuiCol_TableBorderLight] = rgb(38, 44, 56);
  c[ImGuiCol_TableBorderStrong] = rgb(48, 55, 69);
  c[ImGuiCol_TableRowBgAlt] = rgb(255, 255, 255, 0.015F);
  c[ImGuiCol_DockingEmptyBg] = rgb(18, 21, 27);
  c[ImGuiCol_DockingPreview] = rgb(86, 180, 233, 0.4F);
}

void set_plot_style() {
  ImPlotStyle& plot = ImPlot::GetStyle();
  plot.PlotPadding = {6, 6};
  plot.LabelPadding = {4, 3};
  plot.Colors[ImPlotCol_FrameBg] = rgb(0, 0, 0, 0);
  plot.Colors[ImPlotCol_PlotBg] = rgb(20, 23, 30);
  plot.Colors[ImPlotCol_PlotBorder] = rgb(42, 48, 61);
  plot.Colors[ImPlotCol_AxisGrid] = rgb(255, 255, 255, 0.07F);
  plot.Colors[ImPlotCol_AxisText] = rgb(139, 149, 167);
  plot.Colors[ImPlotCol_LegendBg] = rgb(24, 28, 36, 0.85F);
}

}  // namespace

void apply_theme() {
  ImGuiStyle& style = ImGui::GetStyle();
  style = ImGuiStyle();
  ImGui::StyleColorsDark();
  style.WindowPadding = {12, 10};
  style.FramePadding = {8, 4};
  style.ItemSpacing = {8, 6};
  style.CellPadding = {8, 3};
  style.WindowRounding = 4;
  style.FrameRounding = style.ChildRounding = style.PopupRounding = style.GrabRounding = 4;
  style.TabRounding = 4;
  style.WindowBorderSize = 0;
  style.FrameBorderSize = 0;
  style.TabBarOverlineSize = 2;
  style.ScrollbarSize = 11;
  style.ScrollbarRounding = 6;
  style.DockingSeparatorSize = 3;
  style.WindowMenuButtonPosition = ImGuiDir_None;
  style.SeparatorTextBorderSize = 1;
  set_colors(style.Colors);
  if (ImPlot::GetCurrentContext() != nullptr) set_plot_style();

  ImGuiIO& io = ImGui::GetIO();
  ImFontConfig font;
  font.FontDataOwnedByAtlas = false;
  io.Fonts->Clear();
  io.Fonts->AddFontFromMemoryTTF(const_cast<unsigned char*>(kFontData), static_cast<int>(kFontBytes), kFontSize, &font);
}

ImU32 kind_color(Kind kind) {
  switch (kind) {
    case Kind::compute:
      return IM_COL32(86, 180, 233, 255);
    case Kind::communication:
      return IM_COL32(236, 164, 32, 255);
    case Kind::loader:
      return IM_COL32(222, 98, 36, 255);
    case Kind::copy:
      return IM_COL32(240, 228, 98, 255);
    case Kind::sync:
      return IM_COL32(134, 145, 166, 255);
    case Kind::checkpoint:
      return IM_COL32(150, 117, 205, 255);
    case Kind::pipeline_wait:
      return IM_COL32(212, 133, 176, 255);
    case Kind::host:
      return IM_COL32(38, 166, 126, 255);
    case Kind::step:
      return IM_COL32(66, 77, 98, 255);
    case Kind::other:
      break;
  }
  return IM_COL32(101, 112, 132, 255);
}

ImU32 category_color(Category category) {
  switch (category) {
    case Category::compute:
      return kind_color(Kind::compute);
    case Category::exposed_communication:
      return kind_color(Kind::communication);
    case Category::loader_stall:
      return kind_color(Kind::loader);
    case Category::pipeline_bubble:
      return kind_color(Kind::pipeline_wait);
    case Category::copy:
      return kind_color(Kind::copy);
    case Category::checkpoint:
      return kind_color(Kind::checkpoint);
    case Category::host:
      return kind_color(Kind::host);
    case Category::idle:
      break;
  }
  return IM_COL32(58, 66, 82, 255);
}

ImU32 severity_color(detect::Severity severity) {
  switch (severity) {
    case detect::Severity::high:
      return kBad;
    case detect::Severity::medium:
      return kWarn;
    case detect::Severity::low:
      break;
  }
  return kTextDim;
}

std::string kind_title(Kind kind) {
  std::string title = timeline::kind_name(kind);
  std::replace(title.begin(), title.end(), '_', ' ');
  return title;
}

ImU32 with_alpha(ImU32 color, float alpha) {
  return (color & ~IM_COL32_A_MASK) | (static_cast<ImU32>(alpha * 255) << IM_COL32_A_SHIFT);
}

ImU32 brighter(ImU32 color, float factor) {
  const auto channel = [&](int shift) {
    const float value = static_cast<float>((color >> shift) & 0xFF) * factor;
    return static_cast<ImU32>(std::clamp(value, 0.0F, 255.0F)) << shift;
  };
  return channel(IM_COL32_R_SHIFT) | channel(IM_COL32_G_SHIFT) | channel(IM_COL32_B_SHIFT) | (color & IM_COL32_A_MASK);
}

void colored_text(ImU32 color, const std::string& text) {
  ImGui::PushStyleColor(ImGuiCol_Text, color);
  ImGui::TextUnformatted(text.c_str(), text.c_str() + text.size());
  ImGui::PopStyleColor();
}

void pill(const char* text, ImU32 color) {
  const ImVec2 size = ImGui::CalcTextSize(text);
  ImVec2 at = ImGui::GetCursorScreenPos();
  at.y += ImGui::GetCurrentWindow()->DC.CurrLineTextBaseOffset;  // level with text and buttons on the same line
  ImDrawList* draw = ImGui::GetWindowDrawList();
  draw->AddRectFilled({at.x, at.y - 2}, {at.x + size.x + 14, at.y + size.y + 2}, with_alpha(color, 0.18F), 8);
  draw->AddText({at.x + 7, at.y}, color, text);
  ImGui::Dummy({size.x + 14, size.y});
}

void large_text(const std::string& text, float size, ImU32 color) {
  ImGui::PushFont(nullptr, kFontSize * size);
  colored_text(color, text);
  ImGui::PopFont();
}

}  // namespace taut::gui
