// Colours, spacing and font of the window. Kinds have the colours of the Okabe–Ito palette, lifted for a dark ground:
// they can be told apart with any common colour blindness, and by brightness alone where two of them lie side by side.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <string>

#include "analyzer/detect/finding.h"
#include "analyzer/metrics/metrics.h"
#include "analyzer/timeline/timeline.h"

namespace taut::gui {

inline constexpr float kFontSize = 15;

/// Sets style and font of the current ImGui and ImPlot contexts. Once, before the first frame.
void apply_theme();

ImU32 kind_color(timeline::Kind kind);
ImU32 category_color(metrics::Category category);
ImU32 severity_color(detect::Severity severity);

/// "pipeline wait": a kind as people call it.
std::string kind_title(timeline::Kind kind);

inline constexpr ImU32 kTextDim = IM_COL32(139, 149, 167, 255);
inline constexpr ImU32 kTextFaint = IM_COL32(98, 108, 126, 255);
inline constexpr ImU32 kTextOnColor = IM_COL32(16, 20, 27, 255);
inline constexpr ImU32 kGround = IM_COL32(20, 23, 30, 255);
inline constexpr ImU32 kLane = IM_COL32(26, 30, 39, 255);
inline constexpr ImU32 kHeader = IM_COL32(33, 38, 49, 255);
inline constexpr ImU32 kGrid = IM_COL32(255, 255, 255, 14);
inline constexpr ImU32 kAccent = IM_COL32(86, 180, 233, 255);
inline constexpr ImU32 kGood = IM_COL32(72, 199, 142, 255);
inline constexpr ImU32 kBad = IM_COL32(240, 113, 103, 255);
inline constexpr ImU32 kWarn = IM_COL32(238, 187, 77, 255);

/// `color` at another opacity (0…1) or brightness (1 = as it is).
ImU32 with_alpha(ImU32 color, float alpha);
ImU32 brighter(ImU32 color, float factor);

/// A line of text in a colour, or a small filled label such as a severity.
void colored_text(ImU32 color, const std::string& text);
void pill(const char* text, ImU32 color);
/// Text `size` times as large as normal.
void large_text(const std::string& text, float size, ImU32 color);

}  // namespace taut::gui
