// The rerun while it goes on: how far it is, each step as it is done, what it prints, and a way to stop it.
#include <imgui.h>
#include <implot.h>

#include <algorithm>
#include <cstdio>

#include "analyzer/report/units.h"
#include "gui/app/theme.h"
#include "gui/panels/panels.h"

namespace taut::gui {
namespace {

std::string state_text(const Rerun& rerun) {
  switch (rerun.state()) {
    case Rerun::State::preparing:
      return "Writing the config";
    case Rerun::State::running:
      return rerun.steps().empty() ? "Starting " + std::to_string(rerun.plan().ranks) + " ranks" : "Training";
    case Rerun::State::stopping:
      return "Stopping the ranks";
    case Rerun::State::opening:
      return "Opening the new trace";
    case Rerun::State::idle:
      break;
  }
  switch (rerun.outcome()) {
    case Rerun::Outcome::done:
      return "Done";
    case Rerun::Outcome::failed:
      return "The rerun failed";
    case Rerun::Outcome::aborted:
      return "Aborted";
    case Rerun::Outcome::none:
      break;
  }
  return {};
}

ImU32 state_color(const Rerun& rerun) {
  if (rerun.busy()) return kAccent;
  return rerun.outcome() == Rerun::Outcome::done ? kGood : rerun.outcome() == Rerun::Outcome::failed ? kBad : kWarn;
}

void draw_step_graph(const Rerun& rerun, double before_ms) {
  std::vector<double> step, ms;
  double highest = before_ms;
  for (const StepLine& line : rerun.steps()) {
    step.push_back(static_cast<double>(line.step));
    ms.push_back(line.step_ms);
    highest = std::max(highest, line.step_ms);
  }
  const ImPlotFlags flags = ImPlotFlags_NoMenus | ImPlotFlags_NoMouseText | ImPlotFlags_NoInputs;
  if (!ImPlot::BeginPlot("##live", {-1, 150}, flags)) return;
  ImPlot::SetupAxes(nullptr, "ms", 0, 0);
  ImPlot::SetupAxisLimits(ImAxis_X1, 0, std::max<double>(static_cast<double>(rerun.plan().steps), 1),
                          ImPlotCond_Always);
  ImPlot::SetupAxisLimits(ImAxis_Y1, 0, std::max(highest * 1.15, 1.0), ImPlotCond_Always);
  ImPlot::SetupLegend(ImPlotLocation_NorthEast);
  if (before_ms > 0) {
    ImPlotSpec before;
    before.LineColor = ImGui::ColorConvertU32ToFloat4(kTextDim);
    before.Flags = ImPlotInfLinesFlags_Horizontal;
    ImPlot::PlotInfLines("before", &before_ms, 1, before);
  }
  ImPlotSpec line;
  line.LineColor = ImGui::ColorConvertU32ToFloat4(kAccent);
  line.LineWeight = 2;
  ImPlot::PlotLine("now", step.data(), ms.data(), static_cast<int>(step.size()), line);
  ImPlot::EndPlot();
}

void draw_step_lines(const Rerun& rerun) {
  const ImGuiTableFlags flags = ImGuiTableFlags_RowBg | ImGuiTableFlags_ScrollY | ImGuiTableFlags_SizingStretchSame;
  if (!ImGui::BeginTable("steps", 4, flags, {0, std::max(ImGui::GetContentRegionAvail().y * 0.6F, 80.0F)})) return;
  ImGui::TableSetupScrollFreeze(0, 1);
  for (const char* title : {"step", "loss", "tokens/s", "step time"}) ImGui::TableSetupColumn(title);
  ImGui::TableHeadersRow();
  const auto& steps = rerun.steps();
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(steps.size()));
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      const StepLine& line = steps[steps.size() - 1 - static_cast<size_t>(i)];  // newest first
      ImGui::TableNextRow();
      ImGui::TableNextColumn();
      ImGui::Text("%lld", static_cast<long long>(line.step));
      ImGui::TableNextColumn();
      ImGui::Text("%.4f", line.loss);
      ImGui::TableNextColumn();
      ImGui::TextUnformatted(report::format_count(static_cast<int64_t>(line.tokens_per_s)).c_str());
      ImGui::TableNextColumn();
      ImGui::TextUnformatted(report::format_ms(line.step_ms).c_str());
    }
  }
  ImGui::EndTable();
}

void draw_log(const Rerun& rerun) {
  if (rerun.log().empty()) return;
  colored_text(kTextDim, "Output");
  ImGui::BeginChild("log", {0, 0}, ImGuiChildFlags_FrameStyle, ImGuiWindowFlags_HorizontalScrollbar);
  for (const OutputLine& line : rerun.log()) colored_text(line.is_error ? kWarn : kTextDim, line.text);
  if (ImGui::GetScrollY() >= ImGui::GetScrollMaxY()) ImGui::SetScrollHereY(1);
  ImGui::EndChild();
}

}  // namespace

void draw_run_panel(App& app) {
  const Rerun& rerun = app.rerun;
  if (!rerun.busy() && rerun.outcome() == Rerun::Outcome::none) {
    ImGui::PushTextWrapPos(0);
    colored_text(kTextDim,
                 "Tick suggestions under Findings and press Apply and rerun: the patched config is written beside "
                 "the trace, taut train runs it here, and the two traces are set side by side.");
    ImGui::PopTextWrapPos();
    return;
  }
  large_text(state_text(rerun), 1.15F, state_color(rerun));
  if (!rerun.failure().what.empty()) {
    ImGui::PushTextWrapPos(0);
    ImGui::TextUnformatted(rerun.failure().what.c_str());
    if (!rerun.failure().hint.empty()) colored_text(kTextDim, rerun.failure().hint);
    ImGui::PopTextWrapPos();
  }
  char overlay[64];
  std::snprintf(overlay, sizeof overlay, "%zu of %lld steps", rerun.steps().size(),
                static_cast<long long>(rerun.plan().steps));
  const bool stoppable = rerun.busy() && rerun.state() != Rerun::State::stopping;
  const float button = stoppable ? ImGui::CalcTextSize("Abort").x + 2 * ImGui::GetStyle().FramePadding.x +
                                       ImGui::GetStyle().ItemSpacing.x
                                 : 0;
  ImGui::ProgressBar(static_cast<float>(rerun.progress()), {-std::max(button, 1.0F), 0},
                     rerun.plan().steps > 0 ? overlay : "");
  if (stoppable) {
    ImGui::SameLine();
    if (ImGui::Button("Abort")) app.rerun.abort();
  }
  if (!rerun.plan().config.empty()) {
    ImGui::PushTextWrapPos(0);
    colored_text(kTextDim, "config  " + rerun.plan().config);
    colored_text(kTextDim, "trace   " + rerun.plan().trace);
    ImGui::PopTextWrapPos();
  }
  const Document* before = app.sides[0].document.get();
  draw_step_graph(rerun, before ? before->analysis().summary.step_ms : 0);
  draw_step_lines(rerun);
  draw_log(rerun);
}

}  // namespace taut::gui
