// The window's state and what can be done with it. Panels read it and call these functions; commands.h lists the ones
// that have a key. One thread owns all of it; long work is a Task. No ImGui here.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "analyzer/tune/compare.h"
#include "gui/app/document.h"
#include "gui/app/rerun.h"
#include "gui/app/task.h"
#include "gui/timeline/state.h"

namespace taut::gui {

/// The windows, by the names that --view takes and the dock shows.
enum class Panel : uint8_t { timeline, compare, findings, run, breakdown, steps, details };
inline constexpr size_t kPanels = 7;
struct PanelName {
  Panel panel;
  const char* view;   // "timeline", for --view
  const char* title;  // "Timeline", the window
};
inline constexpr std::array<PanelName, kPanels> kPanelNames{{{Panel::timeline, "timeline", "Timeline"},
                                                             {Panel::compare, "compare", "Compare"},
                                                             {Panel::findings, "findings", "Findings"},
                                                             {Panel::run, "run", "Run"},
                                                             {Panel::breakdown, "breakdown", "Breakdown"},
                                                             {Panel::steps, "steps", "Steps"},
                                                             {Panel::details, "details", "Details"}}};
const char* panel_title(Panel panel);
std::optional<Panel> panel_of_view(const std::string& view);

struct Settings {
  std::string taut_program;    // path of `taut`, started by Apply and rerun
  std::string config;          // --config: the file the first trace was made with; empty = as stored in the trace
  int64_t rerun_steps = 0;     // 0 = as the config says
  std::function<void()> wake;  // asks for another frame, from any thread; may be empty
};

/// What the details panel says of the selected slice besides its columns: looked up once per selection.
struct SliceDetails {
  SliceRef of;
  int64_t nested_ns = 0;  // time of the slices directly within it
  std::string event;      // what the trace's typed tables say of it; empty = nothing
};

/// One opened trace: the one looked into, or the one it is compared with.
struct Side {
  std::string path;                          // asked for; empty = nothing
  std::shared_ptr<const Document> document;  // null while loading or after a failure
  Failure failure;
  TimelineState timeline;
  SliceDetails details;
  Task<std::shared_ptr<const Document>> loading;
};

/// What the command line wants to see: a panel in front, and steps [first, last) in the timeline.
struct FirstView {
  Panel panel = Panel::timeline;
  std::optional<std::pair<int64_t, int64_t>> steps;
};

struct App {
  Settings settings;
  std::array<Side, 2> sides;                  // before, after
  size_t shown = 0;                           // the side that the panels other than Compare show
  std::map<std::string, std::string> chosen;  // finding id -> suggestion id, of sides[0]
  Rerun rerun;
  Task<tune::Comparison> comparing;
  std::optional<tune::Comparison> comparison;
  Failure comparison_failure;
  std::optional<Panel> bring_to_front;  // done in the next frame
  std::optional<FirstView> first_view;  // done when the traces asked for on the command line are there
  std::string open_path;                // the text field of the Open dialog
  size_t open_side = 0;
  bool open_dialog = false, help_dialog = false, quit = false;
  int64_t frames_drawn = 0;

  Side& current() { return sides[shown]; }
  const Document* document() const { return sides[shown].document.get(); }
};

/// Begins to load a trace into a side. Opening the first side anew forgets the second and the comparison.
void open_trace(App& app, size_t side, const std::filesystem::path& path);
/// Gives up loading.
void cancel_loading(App& app, size_t side);
/// Closes the second trace.
void close_second(App& app);
/// Goes on from the second trace: it becomes the first, so that its own findings can be applied.
void promote_second(App& app);
/// Shows the same steps of both traces at the same scale.
void align_sides(App& app);

/// Collects what other threads have finished. Once per frame.
void update(App& app);
/// True while other threads work or have results that no frame has collected yet, so that the window keeps drawing.
bool is_busy(const App& app);

void select_slice(App& app, SliceRef slice);
/// Frames and marks the rows that show a finding, selects the first slice among them, and brings the timeline forward.
void show_evidence(App& app, const detect::Evidence& evidence);
/// Frames a step in the timeline, on all ranks.
void show_step(App& app, int64_t step);
/// The same for steps [first, last).
void show_steps(App& app, int64_t first, int64_t last);

/// Starts the chosen suggestions' rerun and brings its panel forward. Nothing happens while one goes on.
void apply_and_rerun(App& app);

}  // namespace taut::gui
