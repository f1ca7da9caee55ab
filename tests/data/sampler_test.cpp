#include "runtime/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

namespace taut::data {
namespace {

std::vector<uint64_t> whole(uint64_t size, uint64_t seed, uint64_t epoch) {
  const Permutation permutation(size, seed, epoch);
  std::vector<uint64_t> order(size);
  for (uint64_t i = 0; i < size; ++i) order[i] = permutation(i);
  return order;
}

TEST(Permutation, IsABijectionForEverySize) {
  for (uint64_t size = 1; size <= 300; ++size) {
    std::vector<uint64_t> order = whole(size, 7, 3);
    std::sort(order.begin(), order.end());
    for (uint64_t i = 0; i < size; ++i) ASSERT_EQ(order[i], i) << "size " << size;
  }
  std::vector<uint64_t> order = whole(100'003, 1, 0);
  std::sort(order.begin(), order.end());
  for (uint64_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], i);
}

TEST(Permutation, StaysInsideHugeSizes) {
  const uint64_t size = (uint64_t{1} << 61) + 12345;
  const Permutation permutation(size, 5, 9);
  std::set<uint64_t> seen;
  for (uint64_t i = 0; i < 1000; ++i) seen.insert(permutation(size - 1 - i * 1'000'003));
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_LT(*seen.rbegin(), size);
}

TEST(Permutation, DiffersBetweenSeedsAndEpochs) {
  const auto order = whole(1000, 1234, 0);
  EXPECT_EQ(order, whole(1000, 1234, 0));
  EXPECT_NE(order, whole(1000, 1234, 1));
  EXPECT_NE(order, whole(1000, 1235, 0));
  EXPECT_NE(whole(1000, 0, 1), whole(1000, 1, 0));
}

// In a uniform permutation of n the number of fixed points is about Poisson(1), and the mean |p(i) - i| is n / 3 with a
// standard deviation of about 0.15 sqrt(n) (each |p(i) - i| has deviation n / sqrt(18)).
TEST(Permutation, LooksUniform) {
  const uint64_t size = 10'000;
  double fixed = 0, distance = 0, follows = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const auto order = whole(size, seed, 0);
    for (uint64_t i = 0; i < size; ++i) {
      fixed += order[i] == i;
      distance += std::abs(static_cast<double>(order[i]) - static_cast<double>(i)) / static_cast<double>(size * 8);
      follows += i > 0 && order[i] == order[i - 1] + 1;
    }
  }
  EXPECT_LT(fixed, 30);    // expected 8
  EXPECT_LT(follows, 30);  // expected 8
  EXPECT_NEAR(distance / static_cast<double>(size), 1.0 / 3, 0.01);
}

// The order is part of what a checkpoint resumes: these numbers must never change. Computed from the definition in
// sampler.h with an independent implementation (Python integers).
TEST(Permutation, IsFrozen) {
  const auto order = whole(10, 1234, 0);
  EXPECT_EQ(order, (std::vector<uint64_t>{4, 2, 8, 0, 9, 5, 6, 7, 1, 3}));
}

TEST(SampleOrder, VisitsEverySampleOnceAnEpoch) {
  const SampleOrder order{50, 3, true};
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < 50; ++i) seen.insert(order[epoch * 50 + i]);
    EXPECT_EQ(seen.size(), 50u);
  }
}

TEST(SampleOrder, CountsUpWithoutShuffling) {
  const SampleOrder order{5, 3, false};
  for (uint64_t i = 0; i < 12; ++i) EXPECT_EQ(order[i], i % 5);
}

TEST(FirstPosition, SharesOutTheGlobalBatchByMicrobatchThenRank) {
  const BatchShape shape{4, 3, 2};  // 4 rows, 3 microbatches, 2 replicas: a global batch of 24
  EXPECT_EQ(first_position(shape, 0, 0, 0), 0u);
  EXPECT_EQ(first_position(shape, 0, 0, 1), 4u);
  EXPECT_EQ(first_position(shape, 0, 1, 0), 8u);
  EXPECT_EQ(first_position(shape, 0, 2, 1), 20u);
  EXPECT_EQ(first_position(shape, 5, 1, 1), 5u * 24 + 12);
}

}  // namespace
}  // namespace taut::data
