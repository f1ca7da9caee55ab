// What data parallelism sends, in bytes a rank and step, and how long a pipeline idles: closed forms.
#pragma once

#include <cstdint>

#include "runtime/config/config.h"

namespace taut::config {

/// Bytes that one rank of stage `pp` sends for its parameters in a step, with the ring's volume: a reduce-scatter or an
/// all-gather of S bytes over N ranks sends (N − 1)/N · S, an all-reduce twice that.
///   stage 0      all-reduce of fp32 gradients, once a step
///   stage 1      reduce-scatter of the gradients, all-gather of the fp32 weights, once a step
///   stage 2, 3   the reduce-scatter in every microbatch
///   stage 3      weights in the compute type: all-gather before each microbatch's forward and, when they are freed in
///                between (reshard_after_forward), before its backward
/// Rajbhandari et al., arXiv 1910.02054, section 7. Experts travel among the dp · cp / ep ranks that hold the same
/// ones.
struct ParameterTraffic {
  double gradients = 0, weights = 0;
};
ParameterTraffic parameter_traffic(const Config& config, int64_t pp, int64_t ep = 0);

/// Share of the step that a stage idles when every forward takes the same time, backward twice it (input and weight
/// gradient each as long as a forward), and transfers nothing. With p stages, m microbatches, v chunks a stage:
/// gpipe and 1f1b (p − 1)/(m + p − 1), interleaved (p − 1)/(v·m + p − 1) (Narayanan et al., arXiv 2104.04473, section
/// 2.2), zero bubble (ZB-H1) (p − 1)/(3m + p − 1) (Qi et al., arXiv 2401.10241, table 2).
double ideal_bubble_fraction(const Config& config);

}  // namespace taut::config
