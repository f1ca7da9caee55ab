#include "analyzer/tune/judge.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "taut.h"

namespace taut::tune {
namespace {

// 0.5 %, because the test takes steps for independent: neighbours that are correlated by 0.3 raise it to the 5 % meant.
// Six steps a side can still reach it.
constexpr double kSignificance = 0.005;

std::vector<double> pooled(const StepTimes& runs) {
  std::vector<double> all;
  for (const auto& run : runs) all.insert(all.end(), run.begin(), run.end());
  return all;
}

void check(const StepTimes& runs, const char* side) {
  size_t count = 0;
  for (const auto& run : runs) {
    for (const double ms : run) {
      if (!std::isfinite(ms) || ms <= 0) {
        throw Error(std::string("run ") + side + " has a step that takes no time",
                    "the trace is damaged; record it again");
      }
      ++count;
    }
  }
  if (count == 0) throw Error(std::string("run ") + side + " has no steps to compare", "trace at least six steps");
}

/// Long enough to keep neighbours together, short enough to leave many blocks: n^(1/3), the optimal rate.
size_t block_length(size_t n) {
  return std::max<size_t>(1, static_cast<size_t>(std::lround(std::cbrt(double(n)))));
}

/// A uniform index below n that is the same on every platform (std::uniform_int_distribution is not).
size_t draw(std::mt19937_64& random, size_t n) {
  return static_cast<size_t>(random() % n);
}

/// Indices 0…n-1 resampled in circular blocks.
void resample_indices(std::mt19937_64& random, size_t n, std::vector<size_t>& out) {
  const size_t block = block_length(n);
  out.clear();
  while (out.size() < n) {
    const size_t start = draw(random, n);
    for (size_t i = 0; i < block && out.size() < n; ++i) out.push_back((start + i) % n);
  }
}

double median_in_place(std::vector<double>& values) {
  const size_t n = values.size(), middle = n / 2;
  std::nth_element(values.begin(), values.begin() + middle, values.end());
  const double upper = values[middle];
  if (n % 2 == 1) return upper;
  return (upper + *std::max_element(values.begin(), values.begin() + middle)) / 2;
}

/// One bootstrap replicate of the median of a side: runs first (when there are several), then blocks of steps.
double resampled_median(std::mt19937_64& random, const StepTimes& runs, std::vector<size_t>& indices,
                        std::vector<double>& values) {
  values.clear();
  for (size_t r = 0; r < runs.size(); ++r) {
    const auto& run = runs.size() == 1 ? runs[0] : runs[draw(random, runs.size())];
    if (run.empty()) continue;
    resample_indices(random, run.size(), indices);
    for (const size_t i : indices) values.push_back(run[i]);
  }
  if (values.empty()) values = pooled(runs);
  return median_in_place(values);
}

/// P(U <= u) under the null by counting arrangements: counts[k] = ways to get U = k with n and m values.
double exact_lower_tail(size_t n, size_t m, double u) {
  // f(n, m)[k] = f(n-1, m)[k-m] + f(n, m-1)[k]: the largest value belongs to one side or the other.
  std::vector<std::vector<std::vector<double>>> f(n + 1, std::vector<std::vector<double>>(m + 1));
  for (size_t i = 0; i <= n; ++i) {
    for (size_t j = 0; j <= m; ++j) {
      auto& counts = f[i][j];
      counts.assign(i * j + 1, 0);
      if (i == 0 || j == 0) {
        counts[0] = 1;
        continue;
      }
      for (size_t k = 0; k <= i * j; ++k) {
        if (k >= j && k - j < f[i - 1][j].size()) counts[k] += f[i - 1][j][k - j];
        if (k < f[i][j - 1].size()) counts[k] += f[i][j - 1][k];
      }
    }
  }
  double total = 0, below = 0;
  for (size_t k = 0; k <= n * m; ++k) {
    total += f[n][m][k];
    if (double(k) <= u) below += f[n][m][k];
  }
  return below / total;
}

}  // namespace

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::faster:
      return "faster";
    case Verdict::slower:
      return "slower";
    case Verdict::no_change:
      break;
  }
  return "no real change";
}

double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  return median_in_place(values);
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const double position = std::clamp(q, 0.0, 1.0) * double(values.size() - 1);
  const size_t below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (position - double(below));
}

double mann_whitney_p(const std::vector<double>& a, const std::vector<double>& b) {
  const size_t n = a.size(), m = b.size();
  if (n == 0 || m == 0) return 1;
  std::vector<std::pair<double, bool>> all;
  for (const double v : a) all.push_back({v, true});
  for (const double v : b) all.push_back({v, false});
  std::sort(all.begin(), all.end());
  double rank_sum_a = 0, tie_term = 0;
  for (size_t i = 0; i < all.size();) {
    size_t j = i;
    while (j < all.size() && all[j].first == all[i].first) ++j;
    const double ties = double(j - i), mean_rank = double(i + 1 + j) / 2;
    tie_term += ties * ties * ties - ties;
    for (; i < j; ++i) {
      if (all[i].second) rank_sum_a += mean_rank;
    }
  }
  const double nm = double(n) * double(m);
  const double u_a = rank_sum_a - double(n) * double(n + 1) / 2;
  const double u = std::min(u_a, nm - u_a);
  if (tie_term == 0 && n <= 20 && m <= 20) return std::min(1.0, 2 * exact_lower_tail(n, m, u));
  const double total = double(n + m);
  const double variance = nm / 12 * (total + 1 - tie_term / (total * (total - 1)));
  if (variance <= 0) return 1;  // every value is the same
  const double z = std::max(0.0, std::abs(u - nm / 2) - 0.5) / std::sqrt(variance);
  return std::min(1.0, std::erfc(z / std::sqrt(2.0)));
}

Judgement judge(const StepTimes& a, const StepTimes& b, bool paired, const JudgeOptions& options) {
  check(a, "A");
  check(b, "B");
  Judgement result;
  const std::vector<double> all_a = pooled(a), all_b = pooled(b);
  result.paired = paired && a.size() == 1 && b.size() == 1 && all_a.size() == all_b.size();
  result.median_a_ms = median(all_a);
  result.median_b_ms = median(all_b);
  result.speedup = result.median_a_ms / result.median_b_ms;
  result.difference_ms = result.median_b_ms - result.median_a_ms;

  std::mt19937_64 random(options.seed);
  std::vector<double> ratios, differences, values;
  std::vector<size_t> indices;
  for (int i = 0; i < options.resamples; ++i) {
    double median_a = 0, median_b = 0;
    if (result.paired) {
      resample_indices(random, all_a.size(), indices);
      values.clear();
      for (const size_t k : indices) values.push_back(all_a[k]);
      median_a = median_in_place(values);
      values.clear();
      for (const size_t k : indices) values.push_back(all_b[k]);
      median_b = median_in_place(values);
    } else {
      median_a = resampled_median(random, a, indices, values);
      median_b = resampled_median(random, b, indices, values);
    }
    ratios.push_back(median_a / median_b);
    differences.push_back(median_b - median_a);
  }
  const double tail = (1 - options.confidence) / 2;
  result.speedup_low = quantile(ratios, tail);
  result.speedup_high = quantile(ratios, 1 - tail);
  result.difference_low_ms = quantile(differences, tail);
  result.difference_high_ms = quantile(differences, 1 - tail);
  result.p_value = mann_whitney_p(all_a, all_b);

  const double half_width = (result.speedup_high - result.speedup_low) / 2 / result.speedup;
  result.noise_band = std::max(options.practical_threshold, half_width);
  const double change = std::abs(result.median_b_ms / result.median_a_ms - 1);
  const bool excludes_one = result.speedup_low > 1 || result.speedup_high < 1;
  if (excludes_one && result.p_value < kSignificance && change >= options.practical_threshold) {
    result.verdict = result.speedup > 1 ? Verdict::faster : Verdict::slower;
  }
  return result;
}

}  // namespace taut::tune
