// The windows, one file each. Every function draws the inside of a window of the given name (app.h: kPanelNames) from
// the App's state; what the user does there goes through the functions of app.h. A new panel is one file, one line in
// kPanelNames and one in the table of frame.cpp.
#pragma once

#include "gui/app/app.h"

namespace taut::gui {

void draw_timeline_panel(App& app);   // the rank lanes
void draw_breakdown_panel(App& app);  // where each rank's step time went, as stacked bars
void draw_steps_panel(App& app);      // step times as a graph
void draw_findings_panel(App& app);   // waste, evidence, suggestions, Apply and rerun
void draw_run_panel(App& app);        // the rerun while it goes on
void draw_compare_panel(App& app);    // before and after, with the verdict
void draw_details_panel(App& app);    // the selected slice

/// How far the trace can be trusted, in one label for the menu bar; more on hover.
void draw_quality_badge(const Document& document);

/// In place of a panel's content while there is no document: what happens, or what to do. True when it drew that.
bool draw_without_document(App& app, size_t side);

/// A key and its value as two columns of the current table.
void key_value_row(const char* key, const std::string& value);

}  // namespace taut::gui
