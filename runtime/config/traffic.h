// What data parallelism sends, in bytes a rank and step: closed forms.
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

}  // namespace taut::config
