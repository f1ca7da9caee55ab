// The selected slice: what, when, how long, where from, what it lies in and what lies in it.
#include <imgui.h>

#include "analyzer/report/escape.h"
#include "analyzer/report/units.h"
#include "gui/app/theme.h"
#include "gui/panels/panels.h"

namespace taut::gui {

void key_value_row(const char* key, const std::string& value) {
  ImGui::TableNextRow();
  ImGui::TableNextColumn();
  colored_text(kTextDim, key);
  ImGui::TableNextColumn();
  ImGui::PushTextWrapPos(0);
  ImGui::TextUnformatted(value.c_str(), value.c_str() + value.size());
  ImGui::PopTextWrapPos();
}

namespace {

int64_t nested_ns(const timeline::Slices& slices, uint32_t slice) {
  int64_t sum = 0;
  for (size_t i = slice + 1; i < slices.size() && slices.start[i] < slices.end[slice]; ++i) {
    if (slices.parent[i] == static_cast<int32_t>(slice)) sum += slices.end[i] - slices.start[i];
  }
  return sum;
}

// What the trace says about a collective, a batch or a pass besides its time; empty = nothing.
std::string event_text(const timeline::Timeline& timeline, int32_t rank, timeline::Table table, int64_t rowid) {
  const timeline::Rank* owner = timeline.find_rank(rank);
  if (!owner || table != timeline::Table::nvtx) return {};
  for (const auto& c : owner->collectives) {
    if (c.event_rowid != rowid) continue;
    std::string text =
        std::string(timeline::op_name(c.op)) + " of " + report::format_bytes(static_cast<double>(c.bytes));
    const auto group = timeline.groups.find(c.group_id);
    if (group != timeline.groups.end() && !group->second.name.empty()) text += " in group " + group->second.name;
    if (c.peer >= 0) text += ", peer " + std::to_string(c.peer);
    if (c.wait_end > c.wait_start)
      text += ", waited for " + report::format_ns(static_cast<double>(c.wait_end - c.wait_start));
    return report::printable(text);
  }
  for (const auto& b : owner->batches) {
    if (b.event_rowid != rowid) continue;
    return "batch of step " + std::to_string(b.step) + ", loader workers: " + std::to_string(b.workers) +
           ", batches ready: " + std::to_string(b.queue_depth);
  }
  for (const auto& m : owner->microbatches) {
    if (m.event_rowid != rowid) continue;
    return std::string(m.pass == 'F'   ? "forward"
                       : m.pass == 'B' ? "backward"
                                       : "weight gradient") +
           " of microbatch " + std::to_string(m.microbatch) + ", stage " + std::to_string(m.stage) + ", step " +
           std::to_string(m.step);
  }
  return {};
}

const SliceDetails& details_of(Side& side, const Track& track) {
  const SliceRef selected = side.timeline.selected;
  if (side.details.of == selected) return side.details;
  const timeline::Timeline& timeline = side.document->timeline;
  const timeline::Slices& slices = slices_of(timeline, track);
  const uint32_t i = selected.slice;
  side.details = {selected, nested_ns(slices, i), event_text(timeline, track.rank, slices.table[i], slices.rowid[i])};
  return side.details;
}

}  // namespace

void draw_details_panel(App& app) {
  const Document* document = app.document();
  if (!document) return colored_text(kTextDim, "No trace is open.");
  const TimelineState& state = app.current().timeline;
  if (state.selected.track < 0) {
    ImGui::PushTextWrapPos(0);
    colored_text(kTextDim, "Click a slice in the timeline to see what it is.");
    ImGui::PopTextWrapPos();
    return;
  }
  const Track& track = document->tracks[static_cast<size_t>(state.selected.track)];
  const timeline::Slices& slices = slices_of(document->timeline, track);
  const uint32_t i = state.selected.slice;
  ImGui::PushTextWrapPos(0);
  ImGui::TextUnformatted(report::printable(name_of(document->timeline, track, i)).c_str());
  ImGui::PopTextWrapPos();
  const bool has_kind = track.section != Section::steps && track.section != Section::passes;
  if (has_kind) pill(kind_title(slices.kind[i]).c_str(), kind_color(slices.kind[i]));
  if (!ImGui::BeginTable("slice", 2, ImGuiTableFlags_SizingFixedFit)) return;
  ImGui::TableSetupColumn("key");
  ImGui::TableSetupColumn("value", ImGuiTableColumnFlags_WidthStretch);
  const int64_t duration = slices.end[i] - slices.start[i];
  key_value_row("duration", report::format_ns(static_cast<double>(duration)));
  const SliceDetails& details = details_of(app.current(), track);
  if (details.nested_ns > 0)
    key_value_row("self", report::format_ns(static_cast<double>(duration - details.nested_ns)));
  key_value_row("start", report::format_ns(static_cast<double>(slices.start[i])));
  if (!details.event.empty()) key_value_row("event", details.event);
  key_value_row("lane",
                (track.rank >= 0 ? "rank " + std::to_string(track.rank) + ", " : "") + report::printable(track.title));
  key_value_row("row", std::string(timeline::table_name(slices.table[i])) + " " + std::to_string(slices.rowid[i]));
  if (slices.parent[i] >= 0) {
    key_value_row("within",
                  report::printable(name_of(document->timeline, track, static_cast<uint32_t>(slices.parent[i]))));
  }
  ImGui::EndTable();
}

}  // namespace taut::gui
