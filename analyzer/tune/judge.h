// Is one run really faster than another? Statistics on arrays of step times, and nothing else.
//
// Step times are neither normal (checkpoints, page faults) nor independent (load comes in phases), so the interval
// comes from a moving-block bootstrap of the ratio of medians (Künsch 1989; percentile interval, fixed seed, so the
// same two runs always get the same verdict), and a difference counts only when three things agree:
//   1. the 95 % interval of the speed-up excludes 1,
//   2. a Mann–Whitney rank test (Mann & Whitney 1947; exact for few steps without ties, else normal with tie
//      correction) rejects at 0.5 %: it is what keeps a bootstrap of few steps honest,
//   3. the difference is at least the practical threshold, below which nobody should change a configuration.
#pragma once

#include <cstdint>
#include <vector>

namespace taut::tune {

enum class Verdict { faster, slower, no_change };

/// What `taut compare` prints and puts into JSON: "faster", "slower", "no real change".
const char* verdict_name(Verdict verdict);

/// Step times in milliseconds, one array per run, in step order.
using StepTimes = std::vector<std::vector<double>>;

struct JudgeOptions {
  double practical_threshold = 0.02;  // smallest change of the step time that is worth a name
  double confidence = 0.95;
  int resamples = 2000;
  uint64_t seed = 20240229;
};

/// `speedup` = median of A / median of B, so above 1 means that B is faster. The interval is of the same ratio.
struct Judgement {
  double median_a_ms = 0, median_b_ms = 0;
  double speedup = 1, speedup_low = 1, speedup_high = 1;
  double difference_ms = 0, difference_low_ms = 0, difference_high_ms = 0;  // B − A per step
  double p_value = 1;                                                       // Mann–Whitney, two-sided
  double noise_band = 0;  // a change smaller than this share of the step cannot be told from noise here
  bool paired = false;    // step k of A was resampled together with step k of B
  Verdict verdict = Verdict::no_change;
};

/// Judges B against A. With several runs a side, runs are resampled too, so that the spread between runs counts.
/// `paired`: both sides have one run and step k of A is the same work as step k of B (equal lengths).
/// Throws taut::Error when a side has no positive finite step time. O(resamples × steps).
Judgement judge(const StepTimes& a, const StepTimes& b, bool paired, const JudgeOptions& options = {});

/// Two-sided p-value of the Mann–Whitney rank-sum test: exact for at most 20 values a side without ties, otherwise the
/// normal approximation with tie and continuity correction. 1 when a side is empty.
double mann_whitney_p(const std::vector<double>& a, const std::vector<double>& b);

/// Middle value (mean of the two middle ones); NaN for none.
double median(std::vector<double> values);

/// The q-quantile (0…1) with linear interpolation between order statistics (type 7); NaN for none.
double quantile(std::vector<double> values, double q);

}  // namespace taut::tune
