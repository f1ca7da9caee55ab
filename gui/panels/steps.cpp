// Step times as a graph: the slowest rank's line, the band down to the fastest, slow steps marked. A click frames a
// step.
#include <imgui.h>
#include <implot.h>

#include <algorithm>
#include <cmath>

#include "analyzer/report/units.h"
#include "gui/app/theme.h"
#include "gui/panels/panels.h"

namespace taut::gui {

void draw_steps_panel(App& app) {
  const Document* document = app.document();
  if (!document) return colored_text(kTextDim, "No trace is open.");
  const StepSeries& series = document->steps;
  if (series.step.empty() || document->timeline.step_source == timeline::StepSource::none)
    return colored_text(kTextDim, "This trace has no steps.");
  const auto count = static_cast<int>(series.step.size());
  const double highest = *std::max_element(series.slowest_ms.begin(), series.slowest_ms.end());
  const ImPlotFlags flags =
      ImPlotFlags_NoLegend | ImPlotFlags_NoMenus | ImPlotFlags_NoMouseText | ImPlotFlags_NoBoxSelect;
  if (!ImPlot::BeginPlot("##steps", {-1, -1}, flags)) return;
  ImPlot::SetupAxes("step", "ms", ImPlotAxisFlags_NoHighlight, ImPlotAxisFlags_NoHighlight);
  ImPlot::SetupAxisLimits(ImAxis_X1, series.step.front() - 0.5, series.step.back() + 0.5);
  ImPlot::SetupAxisLimits(ImAxis_Y1, 0, highest * 1.15);
  ImPlotSpec band;
  band.FillColor = ImGui::ColorConvertU32ToFloat4(kAccent);
  band.FillAlpha = 0.18F;
  ImPlot::PlotShaded("ranks", series.step.data(), series.fastest_ms.data(), series.slowest_ms.data(), count, band);
  ImPlotSpec line;
  line.LineColor = ImGui::ColorConvertU32ToFloat4(kAccent);
  line.LineWeight = 2;
  ImPlot::PlotLine("slowest rank", series.step.data(), series.slowest_ms.data(), count, line);
  ImPlotSpec median;
  median.LineColor = ImGui::ColorConvertU32ToFloat4(with_alpha(kTextDim, 0.7F));
  median.Flags = ImPlotInfLinesFlags_Horizontal;
  ImPlot::PlotInfLines("median", &series.median_ms, 1, median);
  if (!series.slow_step.empty()) {
    ImPlotSpec slow;
    slow.Marker = ImPlotMarker_Circle;
    slow.MarkerSize = 4;
    slow.MarkerFillColor = slow.MarkerLineColor = ImGui::ColorConvertU32ToFloat4(kBad);
    ImPlot::PlotScatter("slow", series.slow_step.data(), series.slow_ms.data(),
                        static_cast<int>(series.slow_step.size()), slow);
  }
  if (ImPlot::IsPlotHovered()) {
    const double at = ImPlot::GetPlotMousePos().x;
    const auto nearest = std::min_element(series.step.begin(), series.step.end(),
                                          [&](double a, double b) { return std::abs(a - at) < std::abs(b - at); });
    const auto i = static_cast<size_t>(nearest - series.step.begin());
    ImGui::SetTooltip("step %.0f: %s\n(median %s)", series.step[i], report::format_ms(series.slowest_ms[i]).c_str(),
                      report::format_ms(series.median_ms).c_str());
    if (ImGui::IsMouseReleased(ImGuiMouseButton_Left) && ImGui::GetIO().MouseDragMaxDistanceSqr[0] < 16) {
      show_step(app, static_cast<int64_t>(series.step[i]));
    }
  }
  ImPlot::EndPlot();
}

}  // namespace taut::gui
