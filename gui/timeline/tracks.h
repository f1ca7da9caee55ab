// The rows of a timeline before they have a place: a rank's steps, pipeline passes, host work, communication, loader
// workers, GPU streams and CUDA calls, each with its slices packed into lines. Built once per trace; no ImGui.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/timeline/timeline.h"
#include "gui/timeline/level_of_detail.h"

namespace taut::gui {

/// In the order from top to bottom.
enum class Section : uint8_t { steps, passes, host, communication, loader, gpu, cuda_calls, other };
const char* section_title(Section section);

/// One lane of the trace, or one made from typed events (steps, passes), which have no lane.
struct Track {
  Section section = Section::other;
  int32_t rank = -1;  // -1 = of no rank
  std::string title;  // "loader 2", "GPU 0 stream 7"
  int32_t lane = -1;  // index into Timeline::lanes; -1 = see `own`
  timeline::Slices own;
  std::vector<std::string> own_names;  // what own.name indexes
  std::vector<Row> rows;
};

const timeline::Slices& slices_of(const timeline::Timeline& timeline, const Track& track);
/// The name of a slice, or "?".
const std::string& name_of(const timeline::Timeline& timeline, const Track& track, uint32_t slice);

/// All tracks, grouped by rank (those of no rank last), in the order of Section. Empty lanes have none.
std::vector<Track> make_tracks(const timeline::Timeline& timeline);

/// A slice of one of the tracks; track -1 = nothing.
struct SliceRef {
  int32_t track = -1;
  uint32_t slice = 0;
  bool operator==(const SliceRef&) const = default;
};

/// The slice that a row of the trace is drawn as: `table` and `rowid` as in a finding's evidence ("TAUT_BATCH", 12). A
/// TAUT_* row without a slice of its own leads to its NVTX row. Nothing when the trace has no such slice. O(n), for
/// clicks.
SliceRef find_slice(const timeline::Timeline& timeline, const std::vector<Track>& tracks, int32_t rank,
                    const std::string& table, int64_t rowid);

}  // namespace taut::gui
