#include "gui/timeline/level_of_detail.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace taut::gui {
namespace {

using timeline::Kind;
using timeline::Slices;

constexpr size_t kKindCount = timeline::kKinds;
using Busy = std::array<int64_t, kKindCount>;

// Sums of every kSumBlock slices, for the kinds that occur.
void add_sums(const Slices& slices, Row& row) {
  std::array<bool, kKindCount> present{};
  for (const uint32_t i : row.slice) present[static_cast<size_t>(slices.kind[i])] = true;
  for (size_t k = 0; k < kKindCount; ++k) {
    if (present[k]) row.kinds.push_back(static_cast<Kind>(k));
  }
  Busy busy{};
  row.sums.reserve((row.size() / kSumBlock + 1) * row.kinds.size());
  for (size_t i = 0; i <= row.size(); ++i) {
    if (i % kSumBlock == 0) {
      for (const Kind kind : row.kinds) row.sums.push_back(busy[static_cast<size_t>(kind)]);
    }
    if (i == row.size()) break;
    const uint32_t s = row.slice[i];
    busy[static_cast<size_t>(slices.kind[s])] += slices.end[s] - slices.start[s];
  }
}

// Busy time of each kind over row.slice[first, last): whole blocks from the sums, the ragged ends one by one.
void add_range(const Slices& slices, const Row& row, size_t first, size_t last, Busy& busy) {
  const size_t block_first = (first + kSumBlock - 1) / kSumBlock, block_last = last / kSumBlock;
  const auto one_by_one = [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) {
      const uint32_t s = row.slice[i];
      busy[static_cast<size_t>(slices.kind[s])] += slices.end[s] - slices.start[s];
    }
  };
  if (block_first >= block_last) return one_by_one(first, last);
  one_by_one(first, block_first * kSumBlock);
  const size_t n = row.kinds.size();
  for (size_t k = 0; k < n; ++k) {
    busy[static_cast<size_t>(row.kinds[k])] += row.sums[block_last * n + k] - row.sums[block_first * n + k];
  }
  one_by_one(block_last * kSumBlock, last);
}

// First i in [from, size) with start >= time. Gallops: the answer is usually near.
size_t first_start_at(const Slices& slices, const Row& row, size_t from, double time) {
  size_t step = 1, low = from, high = from;
  while (high < row.size() && static_cast<double>(slices.start[row.slice[high]]) < time) {
    low = high + 1;
    high += step;
    step *= 2;
  }
  high = std::min(high, row.size());
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (static_cast<double>(slices.start[row.slice[middle]]) < time) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// First i with end > time. Ends are sorted because the slices of a row are disjoint.
size_t first_end_after(const Slices& slices, const Row& row, double time) {
  return static_cast<size_t>(
      std::partition_point(row.slice.begin(), row.slice.end(),
                           [&](uint32_t s) { return static_cast<double>(slices.end[s]) <= time; }) -
      row.slice.begin());
}

}  // namespace

std::vector<Row> pack_rows(const Slices& slices) {
  std::vector<Row> rows;
  std::vector<int64_t> free_from;  // end of the last slice of each row
  for (uint32_t i = 0; i < slices.size(); ++i) {
    size_t r = slices.depth[i];
    while (r < rows.size() && rows[r].size() > 0 && free_from[r] > slices.start[i]) ++r;
    if (r >= rows.size()) {
      rows.resize(r + 1);
      free_from.resize(r + 1);
    }
    rows[r].slice.push_back(i);
    free_from[r] = slices.end[i];
  }
  std::erase_if(rows, [](const Row& row) { return row.size() == 0; });
  for (Row& row : rows) add_sums(slices, row);
  return rows;
}

void fold_row(const Slices& slices, const Row& row, const View& view, double width, DrawList& out) {
  if (row.size() == 0 || width < 1) return;
  const double px_per_ns = width / view.shown.length();
  const double cell_ns = kFoldPx / px_per_ns;
  const auto x_of = [&](int64_t time) {
    return static_cast<float>(std::clamp((static_cast<double>(time) - view.shown.begin) * px_per_ns, -1.0, width + 1));
  };
  const auto length_of = [&](size_t i) {
    const uint32_t s = row.slice[i];
    return static_cast<double>(slices.end[s]) - static_cast<double>(slices.start[s]);
  };
  const auto add_slice = [&](size_t i) {
    const uint32_t s = row.slice[i];
    const float x0 = x_of(slices.start[s]);
    out.items.push_back({.x0 = x0,
                         .x1 = std::max(x_of(slices.end[s]), x0 + 1),
                         .first = static_cast<uint32_t>(i),
                         .kind = slices.kind[s]});
  };

  size_t i = first_end_after(slices, row, view.shown.begin);
  while (i < row.size()) {
    const int64_t start = slices.start[row.slice[i]];
    if (static_cast<double>(start) >= view.shown.end) break;
    if (length_of(i) >= cell_ns) {
      add_slice(i++);
      continue;
    }
    // A long slice that starts in this cell reaches out of it, so it can only be the last to start here.
    const double cell_end = (std::floor(static_cast<double>(start) / cell_ns) + 1) * cell_ns;
    size_t last = std::max(first_start_at(slices, row, i, std::min(cell_end, view.shown.end)), i + 1);
    const bool ends_long = last - i > 1 && length_of(last - 1) >= cell_ns;
    if (ends_long) --last;
    if (last - i == 1) {
      add_slice(i);
    } else {
      Busy busy{};
      add_range(slices, row, i, last, busy);
      const int64_t end = slices.end[row.slice[last - 1]];
      DrawItem item{.x0 = x_of(start),
                    .x1 = 0,
                    .first = static_cast<uint32_t>(i),
                    .count = static_cast<uint32_t>(last - i),
                    .mix_first = static_cast<uint32_t>(out.mixes.size())};
      item.x1 = std::max(x_of(end), item.x0 + 1);
      int64_t total = 0, most = -1;
      for (const Kind kind : row.kinds) {
        const int64_t ns = busy[static_cast<size_t>(kind)];
        if (ns > most) {
          most = ns;
          item.kind = kind;
        }
        if (ns > 0) out.mixes.push_back({kind, ns});
        total += ns;
      }
      item.mix_count = static_cast<uint32_t>(out.mixes.size()) - item.mix_first;
      item.busy =
          end > start ? static_cast<float>(static_cast<double>(total) / static_cast<double>(end - start)) : 1.0F;
      out.items.push_back(item);
    }
    i = last;
    if (ends_long) add_slice(i++);
  }
}

int64_t slice_at(const Slices& slices, const Row& row, double time, double reach_ns) {
  if (row.size() == 0) return -1;
  const size_t after = first_end_after(slices, row, time);
  const auto distance = [&](size_t i) {
    const uint32_t s = row.slice[i];
    const auto start = static_cast<double>(slices.start[s]), end = static_cast<double>(slices.end[s]);
    return std::max({0.0, start - time, time - end});
  };
  int64_t best = -1;
  double best_distance = reach_ns;
  for (size_t i = after > 0 ? after - 1 : 0; i < std::min(after + 1, row.size()); ++i) {
    const double d = distance(i);
    if (d < best_distance || (d == best_distance && (best < 0 || d == 0))) {
      best = static_cast<int64_t>(i);
      best_distance = d;
    }
  }
  return best;
}

}  // namespace taut::gui
