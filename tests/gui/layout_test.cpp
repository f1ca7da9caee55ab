// Tracks and their places: nothing is left out unless it is folded, and then it is counted.
#include "gui/timeline/layout.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/analyzer/trace_builder.h"

namespace taut::gui {
namespace {

using test::TraceBuilder;

size_t slices_in(const std::vector<Track>& tracks) {
  size_t count = 0;
  for (const Track& track : tracks) {
    if (track.lane < 0) continue;
    for (const Row& row : track.rows) count += row.size();
  }
  return count;
}

timeline::Timeline two_ranks() {
  TraceBuilder trace;
  for (int rank = 0; rank < 2; ++rank) {
    trace.rank(rank, rank);
    for (int step = 0; step < 3; ++step) {
      const double at = 1000 * step;
      trace.batch(rank, step, at, at + 100, 2, 0);
      trace.microbatch(rank, step, 0, 0, 'F', at + 100, at + 400);
      trace.op(rank, "aten::mm", at + 110, at + 300);
      trace.microbatch(rank, step, 0, 0, 'B', at + 400, at + 800);
      trace.collective(rank, {.seq = 2 * step, .issue = at + 500, .end = at + 850});
      trace.collective(rank, {.seq = 2 * step + 1, .issue = at + 600, .end = at + 900});  // overlaps the first
      trace.step(rank, step, at, at + 1000);
      trace.work(rank, 0, step, "read", at, at + 900);
      trace.work(rank, 1, step, "read", at, at + 800);
    }
  }
  return trace.load();
}

TEST(Tracks, EveryRankHasItsSectionsInOrder) {
  const auto timeline = two_ranks();
  const auto tracks = make_tracks(timeline);
  std::vector<Section> sections;
  for (const Track& track : tracks) {
    if (track.rank == 1) sections.push_back(track.section);
  }
  EXPECT_EQ(sections, (std::vector{Section::steps, Section::passes, Section::host, Section::communication,
                                   Section::loader, Section::loader}));
  EXPECT_EQ(tracks.front().title, "steps");
}

TEST(Tracks, EverySliceOfEveryLaneIsInARow) {
  const auto timeline = two_ranks();
  const auto tracks = make_tracks(timeline);
  EXPECT_EQ(static_cast<int64_t>(slices_in(tracks)), timeline.events);
  for (const Track& track : tracks) {
    const auto& slices = slices_of(timeline, track);
    for (const Row& row : track.rows) {
      for (size_t i = 1; i < row.size(); ++i) {
        EXPECT_LE(slices.end[row.slice[i - 1]], slices.start[row.slice[i]]) << track.title;
      }
    }
  }
}

TEST(Tracks, EvidenceLeadsToTheSliceThatShowsIt) {
  const auto timeline = two_ranks();
  const auto tracks = make_tracks(timeline);
  const timeline::Batch& batch = timeline.ranks[1].batches[2];
  const SliceRef found = find_slice(timeline, tracks, 1, "TAUT_BATCH", batch.rowid);
  ASSERT_GE(found.track, 0);
  EXPECT_EQ(name_of(timeline, tracks[static_cast<size_t>(found.track)], found.slice), "batch_wait");
  EXPECT_EQ(slices_of(timeline, tracks[static_cast<size_t>(found.track)]).start[found.slice], batch.wait_start);
  EXPECT_EQ(find_slice(timeline, tracks, 1, "TAUT_BATCH", 99'999).track, -1);
  EXPECT_EQ(find_slice(timeline, tracks, 7, "TAUT_BATCH", batch.rowid).track, -1);
  EXPECT_EQ(find_slice(timeline, tracks, 1, "no_such_table", 1).track, -1);
}

TEST(Layout, PlacesEveryLineOnceWithoutOverlap) {
  const auto timeline = two_ranks();
  const auto tracks = make_tracks(timeline);
  const Layout layout = make_layout(tracks, {}, {});
  std::set<int32_t> placed;
  float bottom = 0;
  for (const PlacedTrack& track : layout.tracks) {
    EXPECT_TRUE(placed.insert(track.track).second);
    EXPECT_GE(track.y, bottom);
    EXPECT_EQ(static_cast<size_t>(track.lines + track.hidden_lines),
              tracks[static_cast<size_t>(track.track)].rows.size());
    bottom = track.y + track.height();
  }
  EXPECT_EQ(placed.size(), tracks.size());
  EXPECT_EQ(layout.headers.size(), 2U);
  EXPECT_GE(layout.height, bottom);
}

TEST(Layout, FoldingARankKeepsItsHeaderAndSteps) {
  const auto timeline = two_ranks();
  const auto tracks = make_tracks(timeline);
  Folding folding;
  folding.ranks.insert(0);
  const Layout layout = make_layout(tracks, folding, {});
  EXPECT_EQ(layout.headers.size(), 2U);
  size_t of_rank_0 = 0;
  for (const PlacedTrack& track : layout.tracks) of_rank_0 += tracks[static_cast<size_t>(track.track)].rank == 0;
  EXPECT_EQ(of_rank_0, 1U);
}

TEST(Layout, FoldedSectionsSayHowManyLinesTheyHide) {
  const auto timeline = two_ranks();
  const auto tracks = make_tracks(timeline);
  Folding folding;
  folding.sections.insert({0, Section::communication});
  for (const PlacedTrack& placed : make_layout(tracks, folding, {}).tracks) {
    const Track& track = tracks[static_cast<size_t>(placed.track)];
    if (track.rank == 0 && track.section == Section::communication) {
      EXPECT_EQ(placed.lines, 1);
      EXPECT_EQ(placed.hidden_lines, 1);
    }
  }
}

TEST(Layout, FindsTheLineAtAHeight) {
  const auto timeline = two_ranks();
  const auto tracks = make_tracks(timeline);
  const Layout layout = make_layout(tracks, {}, {});
  for (size_t i = 0; i < layout.tracks.size(); ++i) {
    const PlacedTrack& track = layout.tracks[i];
    for (int line = 0; line < track.lines; ++line) {
      const LineAt at = line_at(layout, track.y + (static_cast<float>(line) + 0.5F) * track.line_height);
      EXPECT_EQ(at.placed, static_cast<int32_t>(i));
      EXPECT_EQ(at.line, line);
    }
  }
  EXPECT_EQ(line_at(layout, -5).placed, -1);
  EXPECT_EQ(line_at(layout, layout.height + 100).placed, -1);
  EXPECT_EQ(line_at(layout, 2).placed, -1);  // the header
}

TEST(Layout, ATraceWithoutSlicesHasNoTracks) {
  TraceBuilder trace;
  trace.rank(0);
  const auto timeline = trace.load();
  EXPECT_TRUE(make_tracks(timeline).empty());
  EXPECT_EQ(make_layout({}, {}, {}).height, 0);
}

}  // namespace
}  // namespace taut::gui
