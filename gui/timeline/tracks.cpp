#include "gui/timeline/tracks.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace taut::gui {
namespace {

using timeline::Kind;
using timeline::Lane;
using timeline::LaneType;
using timeline::Rank;
using timeline::Slices;
using timeline::Table;
using timeline::Timeline;

Section section_of(LaneType type) {
  switch (type) {
    case LaneType::trainer:
      return Section::host;
    case LaneType::loader:
      return Section::loader;
    case LaneType::collectives:
      return Section::communication;
    case LaneType::gpu_stream:
      return Section::gpu;
    case LaneType::cuda_api:
      return Section::cuda_calls;
    case LaneType::ranges:
    case LaneType::other_thread:
      break;
  }
  return Section::other;
}

// "rank 0 trainer" -> "trainer": the group's header says the rank already.
std::string short_title(const Lane& lane) {
  const std::string prefix = "rank " + std::to_string(lane.rank) + " ";
  return lane.title.starts_with(prefix) ? lane.title.substr(prefix.size()) : lane.title;
}

void add(Slices& slices, int64_t start, int64_t end, uint32_t name, Kind kind, Table table, int64_t rowid) {
  slices.start.push_back(start);
  slices.end.push_back(end);
  slices.name.push_back(name);
  slices.kind.push_back(kind);
  slices.depth.push_back(0);
  slices.parent.push_back(-1);
  slices.table.push_back(table);
  slices.rowid.push_back(rowid);
}

Track steps_track(const Rank& rank) {
  Track track{.section = Section::steps, .rank = rank.rank, .title = "steps", .own = {}, .own_names = {}, .rows = {}};
  for (const timeline::Step& step : rank.steps) {
    track.own_names.push_back("step " + std::to_string(step.step));
    add(track.own, step.start, step.end, static_cast<uint32_t>(track.own_names.size() - 1), Kind::step, Table::step,
        step.rowid);
  }
  return track;
}

// Forward passes in one kind, backward passes in the other, so that the schedule can be read off the row.
Track passes_track(const Rank& rank) {
  Track track{.section = Section::passes, .rank = rank.rank, .title = "passes", .own = {}, .own_names = {}, .rows = {}};
  std::map<std::pair<char, int32_t>, uint32_t> names;
  for (const timeline::Microbatch& pass : rank.microbatches) {
    const auto [it, is_new] = names.try_emplace({pass.pass, pass.microbatch}, track.own_names.size());
    if (is_new) track.own_names.push_back(std::string(1, pass.pass) + std::to_string(pass.microbatch));
    add(track.own, pass.start, pass.end, it->second, pass.pass == 'F' ? Kind::compute : Kind::host, Table::microbatch,
        pass.rowid);
  }
  return track;
}

template <class Event>
int64_t event_rowid_of(const std::vector<Event>& events, int64_t rowid) {
  const auto it = std::find_if(events.begin(), events.end(), [&](const Event& e) { return e.rowid == rowid; });
  return it == events.end() ? 0 : it->event_rowid;
}

}  // namespace

const char* section_title(Section section) {
  switch (section) {
    case Section::steps:
      return "steps";
    case Section::passes:
      return "pipeline passes";
    case Section::host:
      return "host";
    case Section::communication:
      return "communication";
    case Section::loader:
      return "loader";
    case Section::gpu:
      return "GPU";
    case Section::cuda_calls:
      return "CUDA calls";
    case Section::other:
      break;
  }
  return "other threads";
}

const Slices& slices_of(const Timeline& timeline, const Track& track) {
  return track.lane < 0 ? track.own : timeline.lanes[static_cast<size_t>(track.lane)].slices;
}

const std::string& name_of(const Timeline& timeline, const Track& track, uint32_t slice) {
  static const std::string unknown = "?";
  const uint32_t name = slices_of(timeline, track).name[slice];
  const auto& names = track.lane < 0 ? track.own_names : timeline.names;
  return name < names.size() ? names[name] : unknown;
}

std::vector<Track> make_tracks(const Timeline& timeline) {
  std::vector<Track> tracks;
  for (const Rank& rank : timeline.ranks) {
    tracks.push_back(steps_track(rank));
    tracks.push_back(passes_track(rank));
  }
  for (size_t i = 0; i < timeline.lanes.size(); ++i) {
    const Lane& lane = timeline.lanes[i];
    tracks.push_back({.section = section_of(lane.type),
                      .rank = lane.rank,
                      .title = short_title(lane),
                      .lane = static_cast<int32_t>(i),
                      .own = {},
                      .own_names = {},
                      .rows = {}});
  }
  for (Track& track : tracks) track.rows = pack_rows(slices_of(timeline, track));
  std::erase_if(tracks, [](const Track& track) { return track.rows.empty(); });
  std::stable_sort(tracks.begin(), tracks.end(), [](const Track& a, const Track& b) {
    return std::make_tuple(a.rank < 0, a.rank, a.section) < std::make_tuple(b.rank < 0, b.rank, b.section);
  });
  return tracks;
}

SliceRef find_slice(const Timeline& timeline, const std::vector<Track>& tracks, int32_t rank, const std::string& table,
                    int64_t rowid) {
  const auto search = [&](const std::string& wanted, int64_t id) -> SliceRef {
    for (size_t t = 0; t < tracks.size(); ++t) {
      if (rank >= 0 && tracks[t].rank != rank && tracks[t].rank >= 0) continue;
      const Slices& slices = slices_of(timeline, tracks[t]);
      for (size_t i = 0; i < slices.size(); ++i) {
        if (slices.rowid[i] == id && wanted == timeline::table_name(slices.table[i])) {
          return {static_cast<int32_t>(t), static_cast<uint32_t>(i)};
        }
      }
    }
    return {};
  };
  if (const SliceRef found = search(table, rowid); found.track >= 0) return found;
  const Rank* owner = timeline.find_rank(rank);
  if (!owner) return {};
  int64_t event = 0;
  if (table == timeline::table_name(Table::collective)) event = event_rowid_of(owner->collectives, rowid);
  if (table == timeline::table_name(Table::microbatch)) event = event_rowid_of(owner->microbatches, rowid);
  if (table == timeline::table_name(Table::batch)) event = event_rowid_of(owner->batches, rowid);
  if (table == timeline::table_name(Table::loader_work)) event = event_rowid_of(owner->loader_work, rowid);
  return event > 0 ? search(timeline::table_name(Table::nvtx), event) : SliceRef{};
}

}  // namespace taut::gui
