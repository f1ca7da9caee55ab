#include "gui/app/app.h"

#include <algorithm>
#include <limits>

namespace taut::gui {
namespace {

constexpr int64_t kStepsAligned = 3;  // shown side by side when a comparison opens

// First start and last end of the steps [first, last) over all ranks; empty when the trace has none of them.
std::optional<TimeRange> extent_of_steps(const timeline::Timeline& timeline, int64_t first, int64_t last) {
  int64_t begin = std::numeric_limits<int64_t>::max(), end = std::numeric_limits<int64_t>::min();
  for (const auto& rank : timeline.ranks) {
    for (const auto& step : rank.steps) {
      if (step.step < first || step.step >= last) continue;
      begin = std::min(begin, step.start);
      end = std::max(end, step.end);
    }
  }
  if (begin > end) return {};
  return TimeRange{static_cast<double>(begin), static_cast<double>(end)};
}

void forget_comparison(App& app) {
  app.comparing.cancel();
  app.comparison.reset();
  app.comparison_failure = {};
}

void start_comparison(App& app) {
  forget_comparison(app);
  if (!app.sides[0].document || !app.sides[1].document) return;
  app.comparing.start(
      [a = app.sides[0].document, b = app.sides[1].document](Progress& progress) {
        progress.enter("comparing");
        return tune::compare({a->run}, {b->run});
      },
      app.settings.wake);
}

void show_document(App& app, size_t side, std::shared_ptr<const Document> document) {
  Side& slot = app.sides[side];
  slot.document = std::move(document);
  slot.path = slot.document->path;
  slot.failure = {};
  slot.timeline = {};
  slot.details = {};
  const timeline::Timeline& timeline = slot.document->timeline;
  slot.timeline.view = make_view(static_cast<double>(timeline.start_ns), static_cast<double>(timeline.end_ns));
  if (side == 0) {
    app.chosen.clear();
    // Ticked from the start: the best suggestion of the most costly finding that has one.
    for (const auto& finding : slot.document->analysis().findings) {
      if (finding.severity == detect::Severity::low || finding.suggestions.empty() ||
          finding.suggestions.front().patch.empty()) {
        continue;
      }
      app.chosen[finding.id] = finding.suggestions.front().id;
      break;
    }
  }
  start_comparison(app);
  align_sides(app);
}

// Ranks are often many; the timeline scrolls to the one that matters.
void scroll_to_rank(TimelineState& state, const Document& document, int32_t rank) {
  for (size_t i = 0; i < document.tracks.size(); ++i) {
    if (document.tracks[i].rank != rank) continue;
    state.scroll_to_track = static_cast<int32_t>(i);
    return;
  }
}

}  // namespace

const char* panel_title(Panel panel) {
  for (const PanelName& name : kPanelNames) {
    if (name.panel == panel) return name.title;
  }
  return "";
}

std::optional<Panel> panel_of_view(const std::string& view) {
  for (const PanelName& name : kPanelNames) {
    if (view == name.view) return name.panel;
  }
  return {};
}

void open_trace(App& app, size_t side, const std::filesystem::path& path) {
  if (side == 0) close_second(app);
  forget_comparison(app);
  Side& slot = app.sides[side];
  slot.path = path.string();
  slot.document.reset();
  slot.failure = {};
  slot.loading.start([path](Progress& progress) { return load_document(path, progress); }, app.settings.wake);
  if (side == 0) app.shown = 0;
}

void cancel_loading(App& app, size_t side) {
  app.sides[side].loading.request_cancel();
}

void close_second(App& app) {
  forget_comparison(app);
  app.sides[1].loading.cancel();
  app.sides[1].document.reset();
  app.sides[1].path.clear();
  app.sides[1].failure = {};
  app.shown = 0;
}

void promote_second(App& app) {
  if (!app.sides[1].document || app.rerun.busy()) return;
  auto document = app.sides[1].document;
  close_second(app);
  show_document(app, 0, std::move(document));
  app.bring_to_front = Panel::timeline;
}

void align_sides(App& app) {
  const Document *a = app.sides[0].document.get(), *b = app.sides[1].document.get();
  if (!a || !b) return;
  // The first steps that both analyses look at: those before are warm-up.
  const auto first_analysed = [](const Document& d) {
    return d.steps.step.empty() ? 0 : static_cast<int64_t>(d.steps.step.front());
  };
  const int64_t first = std::max(first_analysed(*a), first_analysed(*b));
  const auto in_a = extent_of_steps(a->timeline, first, first + kStepsAligned);
  const auto in_b = extent_of_steps(b->timeline, first, first + kStepsAligned);
  if (!in_a || !in_b) return;
  const double length = std::max(in_a->length(), in_b->length());
  frame(app.sides[0].timeline.view, in_a->begin, in_a->begin + length, 0.03);
  frame(app.sides[1].timeline.view, in_b->begin, in_b->begin + length, 0.03);
}

void update(App& app) {
  for (size_t i = 0; i < app.sides.size(); ++i) {
    Side& side = app.sides[i];
    if (!side.loading.finished()) continue;
    Failure failure;
    if (auto document = side.loading.take(failure)) {
      show_document(app, i, std::move(*document));
      if (i == 1) app.bring_to_front = Panel::compare;
    } else {
      side.failure = failure;
      if (failure.what.empty()) side.path.clear();  // cancelled
    }
  }
  if (auto after = app.rerun.advance()) {
    show_document(app, 1, std::move(after));
    app.bring_to_front = Panel::compare;
  }
  if (app.first_view && app.sides[0].document && !app.sides[1].loading.running()) {
    const FirstView view = *std::exchange(app.first_view, std::nullopt);
    if (view.steps) show_steps(app, view.steps->first, view.steps->second);
    app.bring_to_front = view.panel;
  }
  if (app.comparing.finished()) app.comparison = app.comparing.take(app.comparison_failure);
}

bool is_busy(const App& app) {
  return app.sides[0].loading.pending() || app.sides[1].loading.pending() || app.rerun.busy() ||
         app.comparing.pending();
}

void select_slice(App& app, SliceRef slice) {
  app.current().timeline.selected = slice;
}

void show_evidence(App& app, const detect::Evidence& evidence) {
  const Document* document = app.document();
  if (!document) return;
  TimelineState& state = app.current().timeline;
  const auto begin = static_cast<double>(evidence.start), end = static_cast<double>(evidence.end);
  frame(state.view, begin, end, 1.0);
  state.mark = Mark{{begin, end}, evidence.rank};
  state.folding.ranks.erase(evidence.rank);
  state.selected = find_slice(document->timeline, document->tracks, evidence.rank, evidence.table, evidence.rowid);
  scroll_to_rank(state, *document, evidence.rank);
  app.bring_to_front = Panel::timeline;
}

void show_step(App& app, int64_t step) {
  show_steps(app, step, step + 1);
}

void show_steps(App& app, int64_t first, int64_t last) {
  const Document* document = app.document();
  if (!document) return;
  const auto extent = extent_of_steps(document->timeline, first, last);
  if (!extent) return;
  TimelineState& state = app.current().timeline;
  frame(state.view, extent->begin, extent->end, 0.05);
  state.mark.reset();
  app.bring_to_front = Panel::timeline;
}

void apply_and_rerun(App& app) {
  if (app.rerun.busy() || !app.sides[0].document) return;
  close_second(app);
  RerunRequest request{.suggestions = {}, .config = app.settings.config, .steps = app.settings.rerun_steps};
  for (const auto& [finding, suggestion] : app.chosen) request.suggestions.push_back(suggestion);
  app.rerun.start(app.sides[0].document, std::move(request), app.settings.taut_program, app.settings.wake);
  app.bring_to_front = Panel::run;
}

}  // namespace taut::gui
