#include "analyzer/tune/judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "taut.h"

namespace taut::tune {
namespace {

/// n step times around `mean_ms` with log-normal noise; `correlation` couples neighbours (AR(1) in the log).
std::vector<double> noisy(std::mt19937_64& random, size_t n, double mean_ms, double noise, double correlation = 0) {
  std::normal_distribution<double> normal;
  std::vector<double> out;
  double state = normal(random);
  for (size_t i = 0; i < n; ++i) {
    out.push_back(mean_ms * std::exp(noise * state));
    state = correlation * state + std::sqrt(1 - correlation * correlation) * normal(random);
  }
  return out;
}

/// The two-sided p-value by its definition: the share of all ways to deal the values out that are at least as extreme.
double p_by_enumeration(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> all = a;
  all.insert(all.end(), b.begin(), b.end());
  const auto u = [](const std::vector<double>& x, const std::vector<double>& y) {
    double wins = 0;
    for (const double v : x) {
      for (const double w : y) wins += v > w ? 1 : v == w ? 0.5 : 0;
    }
    return wins;
  };
  const double middle = double(a.size() * b.size()) / 2, observed = std::abs(u(a, b) - middle);
  std::vector<bool> in_a(all.size(), false);
  std::fill(in_a.begin(), in_a.begin() + static_cast<std::ptrdiff_t>(a.size()), true);
  double extreme = 0, total = 0;
  do {
    std::vector<double> x, y;
    for (size_t i = 0; i < all.size(); ++i) (in_a[i] ? x : y).push_back(all[i]);
    extreme += std::abs(u(x, y) - middle) >= observed - 1e-9;
    ++total;
  } while (std::prev_permutation(in_a.begin(), in_a.end()));
  return extreme / total;
}

TEST(MannWhitney, EqualsTheEnumerationOfAllDeals) {
  std::mt19937_64 random(3);
  for (const auto& [n, m] : {std::pair<size_t, size_t>{1, 1}, {3, 3}, {5, 5}, {4, 7}, {6, 6}}) {
    for (int trial = 0; trial < 5; ++trial) {
      const auto a = noisy(random, n, 100, 0.1), b = noisy(random, m, 105, 0.1);
      EXPECT_NEAR(mann_whitney_p(a, b), p_by_enumeration(a, b), 1e-12) << n << " and " << m;
    }
  }
}

TEST(MannWhitney, ApproximatesTheEnumerationWithTies) {
  const std::vector<double> a{1, 2, 2, 3, 4, 4, 5}, b{2, 3, 4, 5, 5, 6, 6, 7};
  EXPECT_NEAR(mann_whitney_p(a, b), p_by_enumeration(a, b), 0.02);
  EXPECT_DOUBLE_EQ(mann_whitney_p({5, 5, 5}, {5, 5, 5, 5}), 1);
  EXPECT_DOUBLE_EQ(mann_whitney_p({}, {1.0}), 1);
}

TEST(Quantile, InterpolatesBetweenOrderStatistics) {
  EXPECT_DOUBLE_EQ(quantile({4, 1, 3, 2}, 0.25), 1.75);  // numpy.quantile([1,2,3,4], 0.25)
  EXPECT_DOUBLE_EQ(quantile({4, 1, 3, 2}, 1), 4);
  EXPECT_DOUBLE_EQ(median({3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_TRUE(std::isnan(median({})));
}

struct NoiseCase {
  size_t steps;
  double noise, correlation;
  bool paired;
};

class JudgeNoise : public testing::TestWithParam<NoiseCase> {};

// Both runs are the same configuration, so every "faster" or "slower" is an error; at most 5 % are allowed.
TEST_P(JudgeNoise, IsNotCalledAChange) {
  const auto [steps, noise, correlation, paired] = GetParam();
  std::mt19937_64 random(11);
  const int trials = 400;
  int wrong = 0;
  for (int i = 0; i < trials; ++i) {
    const auto a = noisy(random, steps, 100, noise, correlation), b = noisy(random, steps, 100, noise, correlation);
    wrong += judge({a}, {b}, paired, {.resamples = 400}).verdict != Verdict::no_change;
  }
  EXPECT_LE(wrong, trials * 5 / 100) << "of " << trials;
}

INSTANTIATE_TEST_SUITE_P(Noise, JudgeNoise,
                         testing::Values(NoiseCase{5, 0.05, 0, false}, NoiseCase{12, 0.01, 0, true},
                                         NoiseCase{12, 0.10, 0, false}, NoiseCase{18, 0.10, 0, true},
                                         NoiseCase{18, 0.05, 0.3, true}, NoiseCase{60, 0.10, 0, false},
                                         NoiseCase{60, 0.10, 0.3, true}));

TEST(Judge, FindsFivePercentUnderOnePercentNoise) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 100; ++i) {
    const auto slow = noisy(random, 12, 100, 0.01), fast = noisy(random, 12, 95, 0.01);
    const auto gain = judge({slow}, {fast}, true), loss = judge({fast}, {slow}, false);
    EXPECT_EQ(gain.verdict, Verdict::faster);
    EXPECT_EQ(loss.verdict, Verdict::slower);
    EXPECT_NEAR(gain.speedup, 100.0 / 95, 0.02);
    EXPECT_LT(gain.difference_high_ms, 0);
  }
}

TEST(Judge, IntervalCoversTheTrueRatio) {
  std::mt19937_64 random(7);
  const int trials = 300;
  int covered = 0;
  for (int i = 0; i < trials; ++i) {
    const auto result = judge({noisy(random, 30, 100, 0.05)}, {noisy(random, 30, 80, 0.05)}, false, {.resamples = 400});
    covered += result.speedup_low <= 1.25 && 1.25 <= result.speedup_high;
  }
  EXPECT_GE(covered, trials * 90 / 100) << "a 95 % interval, less what a bootstrap of 30 values loses";
}

TEST(Judge, IgnoresAChangeTooSmallToMatter) {
  std::mt19937_64 random(5);
  const auto result = judge({noisy(random, 200, 100, 0.002)}, {noisy(random, 200, 99, 0.002)}, false);
  EXPECT_GT(result.speedup_low, 1) << "the difference is there";
  EXPECT_EQ(result.verdict, Verdict::no_change) << "but it is 1 %";
}

TEST(Judge, NeverClaimsAnythingFromTwoSteps) {
  EXPECT_EQ(judge({{100, 101}}, {{50, 51}}, true).verdict, Verdict::no_change);
}

TEST(Judge, IsNotFooledByOneSlowStep) {
  std::vector<double> a(20, 100.0), b(20, 100.0);
  for (size_t i = 0; i < 20; ++i) a[i] += 0.01 * double(i), b[i] += 0.01 * double(19 - i);
  a[7] = 5000;  // a checkpoint
  EXPECT_EQ(judge({a}, {b}, true).verdict, Verdict::no_change);
}

TEST(Judge, CountsTheSpreadBetweenRuns) {
  std::mt19937_64 random(9);
  StepTimes a, b;
  for (const double mean : {90.0, 110.0, 100.0}) a.push_back(noisy(random, 20, mean, 0.01));
  for (const double mean : {94.0, 104.0, 96.0}) b.push_back(noisy(random, 20, mean, 0.01));
  EXPECT_EQ(judge(a, b, false).verdict, Verdict::no_change) << "runs of A differ by more than A and B do";
}

TEST(Judge, SaysTheSameTwice) {
  std::mt19937_64 random(1);
  const auto a = noisy(random, 15, 100, 0.05), b = noisy(random, 15, 97, 0.05);
  const auto first = judge({a}, {b}, false), second = judge({a}, {b}, false);
  EXPECT_EQ(first.speedup_low, second.speedup_low);
  EXPECT_EQ(first.speedup_high, second.speedup_high);
}

TEST(Judge, RefusesStepsThatTakeNoTime) {
  EXPECT_THROW(judge({{}}, {{1.0}}, false), Error);
  EXPECT_THROW(judge({{1.0}}, {{0.0}}, false), Error);
  EXPECT_THROW(judge({{1.0}}, {{std::nan("")}}, false), Error);
}

}  // namespace
}  // namespace taut::tune
