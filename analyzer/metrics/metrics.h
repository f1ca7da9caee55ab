// Numbers about a trace: where every rank's step time went, and what the run as a whole achieved.
//
// Sources: a timeline::Timeline. All functions are pure. Shares are 0…1, `_ms` are milliseconds, `_ns` integer
// nanoseconds; what cannot be known from the trace is an empty optional (null in JSON).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analyzer/timeline/timeline.h"

namespace taut::metrics {

/// The exclusive parts of a step. Every nanosecond of a step belongs to exactly one.
enum class Category : uint8_t {
  compute,
  exposed_communication,
  loader_stall,
  pipeline_bubble,
  copy,
  checkpoint,
  host,
  idle
};
inline constexpr size_t kCategories = 8;
inline constexpr std::array<Category, kCategories> kAllCategories{
    Category::compute,      Category::exposed_communication,
    Category::loader_stall, Category::pipeline_bubble,
    Category::copy,         Category::checkpoint,
    Category::host,         Category::idle};
const char* category_name(Category category);

/// One value per category, in nanoseconds or as shares.
template <class T>
struct PerCategory {
  std::array<T, kCategories> value{};
  T& operator[](Category c) { return value[static_cast<size_t>(c)]; }
  const T& operator[](Category c) const { return value[static_cast<size_t>(c)]; }
};

/// A stretch of a step with one category. `waits_for` is the rank that a wait was waiting for, -1 when it is no wait
/// for a peer (work of its own, or bytes in flight).
struct Segment {
  int64_t start = 0, end = 0;
  Category category = Category::idle;
  int32_t waits_for = -1;
};

/// One step of one rank. `segments` cover [start, end) without gap or overlap, sorted.
struct StepPartition {
  int64_t step = 0, start = 0, end = 0;
  std::vector<Segment> segments;
  PerCategory<int64_t> ns;
  int64_t communication_ns = 0;  // union of collectives' transfers, hidden or not
  int64_t overlapped_ns = 0;     // of these, under compute

  int64_t duration_ns() const { return end - start; }
};

struct RankMetrics {
  int32_t rank = 0, dp = 0, tp = 0, pp = 0, cp = 0, ep = 0;
  int64_t steps = 0;
  double step_ms_median = 0, step_ms_p95 = 0;
  PerCategory<double>
      breakdown;           // shares of all analysed steps' time; sums to 1 (0 everywhere when there are no steps)
  double utilization = 0;  // = breakdown.compute
  double communication_share = 0;         // communication / step, hidden or not
  std::optional<double> overlap;          // hidden communication / communication; null without communication
  int64_t memory_peak_bytes = 0;          // device memory where known, else resident set; 0 = not traced
  std::vector<StepPartition> partitions;  // one per analysed step, in order
};

struct Straggler {
  int32_t rank = 0;
  double excess_share = 0;  // how much of the step the job would save if this rank were as fast as its typical peer
};

/// Mean over ranks of per-rank medians; `step_ms` = median over steps of the slowest rank; `tokens_per_s` = global
/// tokens over wall time.
struct Summary {
  double step_ms = 0, tokens_per_s = 0;
  std::optional<double> mfu;
  double utilization = 0, communication_share = 0;
  std::optional<double> overlap;
  std::optional<double> bubble_fraction, ideal_bubble_fraction;  // of the pipeline; null without one
  double loader_stall_share = 0;
  double slowdown = 1;
  std::optional<Straggler> straggler;
};

/// Share of the critical path spent in a category: backwards from the end of the slowest rank's step, and over to the
/// peer whenever the rank waits for one.
struct CriticalPathShare {
  Category kind = Category::idle;
  double share = 0;
};

/// Half-open range of step numbers; an absent bound is open.
struct StepRange {
  std::optional<int64_t> first, last;
  bool contains(int64_t step) const { return (!first || step >= *first) && (!last || step < *last); }
};

struct Metrics {
  std::vector<RankMetrics> ranks;  // by rank number
  Summary summary;
  std::vector<CriticalPathShare> critical_path;  // largest first
  std::vector<int64_t> steps;                    // analysed step numbers, sorted
};

/// Partitions the steps in `range` on every rank and sums up. A file without steps gives metrics without partitions,
/// except on ranks with GPU work, whose whole traced span counts as one step (number 0).
Metrics measure(const timeline::Timeline& timeline, const StepRange& range);

}  // namespace taut::metrics
