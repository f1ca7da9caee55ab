#include "gui/app/commands.h"

#include <algorithm>

namespace taut::gui {
namespace {

bool always(const App&) {
  return true;
}
bool has_document(const App& app) {
  return app.document() != nullptr;
}
bool has_second(const App& app) {
  return app.sides[1].document != nullptr;
}
bool has_selection(const App& app) {
  return app.document() && app.sides[app.shown].timeline.selected.track >= 0;
}
bool can_rerun(const App& app) {
  return app.sides[0].document && !app.chosen.empty() && !app.rerun.busy();
}
bool can_abort(const App& app) {
  return app.rerun.busy();
}

void ask_for_trace(App& app) {
  app.open_side = 0;
  app.open_dialog = true;
}

void ask_for_second(App& app) {
  app.open_side = 1;
  app.open_dialog = true;
}

void fit_view(App& app) {
  fit(app.current().timeline.view);
  app.current().timeline.mark.reset();
}

void frame_selection(App& app) {
  TimelineState& state = app.current().timeline;
  const Document& document = *app.document();
  const auto& slices = slices_of(document.timeline, document.tracks[static_cast<size_t>(state.selected.track)]);
  const uint32_t i = state.selected.slice;
  frame(state.view, static_cast<double>(slices.start[i]), static_cast<double>(slices.end[i]));
}

void step_selection(App& app, int direction) {
  TimelineState& state = app.current().timeline;
  const Document& document = *app.document();
  const Track& track = document.tracks[static_cast<size_t>(state.selected.track)];
  const auto& slices = slices_of(document.timeline, track);
  // Within the line it is drawn in, so that "next" is what lies to the right of it.
  for (const Row& row : track.rows) {
    const auto it = std::lower_bound(row.slice.begin(), row.slice.end(), state.selected.slice);
    if (it == row.slice.end() || *it != state.selected.slice) continue;
    const auto next = (it - row.slice.begin()) + direction;
    if (next < 0 || next >= static_cast<std::ptrdiff_t>(row.size())) return;
    state.selected.slice = row.slice[static_cast<size_t>(next)];
    const auto begin = static_cast<double>(slices.start[state.selected.slice]),
               end = static_cast<double>(slices.end[state.selected.slice]);
    if (begin < state.view.shown.begin || end > state.view.shown.end) {
      pan(state.view,
          ((begin + end) - (state.view.shown.begin + state.view.shown.end)) / 2 / state.view.shown.length());
    }
    return;
  }
}

constexpr Command kCommands[] = {
    {Menu::file, "Open a trace", ImGuiMod_Ctrl | ImGuiKey_O, ask_for_trace, always},
    {Menu::file, "Open a second trace", ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_O, ask_for_second, has_document},
    {Menu::file, "Close the second trace", 0, close_second, has_second},
    {Menu::file, "Quit", ImGuiMod_Ctrl | ImGuiKey_Q, [](App& app) { app.quit = true; }, always},
    {Menu::view, "Fit", ImGuiKey_F, fit_view, has_document},
    {Menu::view, "Zoom to the selection", ImGuiKey_Z, frame_selection, has_selection},
    {Menu::view, "Next slice", ImGuiKey_Period, [](App& app) { step_selection(app, 1); }, has_selection},
    {Menu::view, "Previous slice", ImGuiKey_Comma, [](App& app) { step_selection(app, -1); }, has_selection},
    {Menu::view, "Show the run before", ImGuiKey_1, [](App& app) { app.shown = 0; }, has_second},
    {Menu::view, "Show the run after", ImGuiKey_2, [](App& app) { app.shown = 1; }, has_second},
    {Menu::view, "Keys and mouse", ImGuiKey_F1, [](App& app) { app.help_dialog = true; }, always},
    {Menu::run, "Apply and rerun", ImGuiMod_Ctrl | ImGuiKey_R, apply_and_rerun, can_rerun},
    {Menu::run, "Abort the rerun", 0, [](App& app) { app.rerun.abort(); }, can_abort},
    {Menu::run, "Continue from the second run", 0, promote_second, has_second},
};

}  // namespace

std::span<const Command> commands() {
  return kCommands;
}

void run_pressed_commands(App& app) {
  if (ImGui::IsPopupOpen("", ImGuiPopupFlags_AnyPopupId | ImGuiPopupFlags_AnyPopupLevel)) return;
  for (const Command& command : kCommands) {
    if (command.keys == 0 || !ImGui::IsKeyChordPressed(command.keys)) continue;
    if (ImGui::GetIO().WantTextInput && (command.keys & ImGuiMod_Ctrl) == 0) continue;
    if (command.enabled(app)) command.run(app);
  }
}

}  // namespace taut::gui
