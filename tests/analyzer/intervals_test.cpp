// The interval algebra against a bitmap: every operation on random sets, bit by bit.
#include "analyzer/metrics/intervals.h"

#include <gtest/gtest.h>

#include <bitset>
#include <random>

namespace taut::metrics {
namespace {

constexpr int kBits = 64;
using Bitmap = std::bitset<kBits>;

Bitmap bitmap(const std::vector<Interval>& intervals) {
  Bitmap bits;
  for (const Interval& interval : intervals) {
    for (int64_t t = interval.start; t < interval.end; ++t) bits.set(static_cast<size_t>(t));
  }
  return bits;
}

std::vector<Interval> random_intervals(std::mt19937& random) {
  std::uniform_int_distribution<int> count(0, 9), time(0, kBits);
  std::vector<Interval> intervals(static_cast<size_t>(count(random)));
  for (Interval& interval : intervals) interval = {time(random), time(random)};  // inverted ones too
  return intervals;
}

void expect_canonical(const IntervalSet& set) {
  for (size_t i = 0; i < set.size(); ++i) {
    EXPECT_LT(set[i].start, set[i].end);
    if (i > 0) {
      EXPECT_LT(set[i - 1].end, set[i].start);
    }
  }
}

void expect_equals(const IntervalSet& set, const Bitmap& bits) {
  expect_canonical(set);
  EXPECT_EQ(bitmap(set), bits);
  EXPECT_EQ(length(set), static_cast<int64_t>(bits.count()));
}

TEST(Intervals, AgreeWithABitmap) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 3000; ++trial) {
    const auto a = random_intervals(random), b = random_intervals(random);
    const Bitmap bits_a = bitmap(a), bits_b = bitmap(b);
    const IntervalSet set_a = normalize(a), set_b = normalize(b);
    expect_equals(set_a, bits_a);
    expect_equals(unite(set_a, set_b), bits_a | bits_b);
    expect_equals(intersect(set_a, set_b), bits_a & bits_b);
    expect_equals(subtract(set_a, set_b), bits_a & ~bits_b);
    std::uniform_int_distribution<int> time(0, kBits);
    const int64_t start = time(random), end = time(random);
    expect_equals(clip(set_a, start, end), bits_a & bitmap({{start, end}}));
  }
}

TEST(Intervals, WorkOnTimesBeforeTheSessionStart) {
  const IntervalSet set = normalize({{-30, -10}, {-20, 5}});
  EXPECT_EQ(set, (IntervalSet{{-30, 5}}));
  EXPECT_EQ(length(clip(set, -15, 100)), 20);
}

}  // namespace
}  // namespace taut::metrics
