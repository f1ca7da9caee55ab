#include "runtime/config/traffic.h"

#include "runtime/config/model_math.h"

namespace taut::config {

ParameterTraffic parameter_traffic(const Config& c, int64_t pp, int64_t ep) {
  const HeldParameters held = held_parameters(c, pp, ep);
  const ZeroOptimization& zero = c.zero_optimization;
  const auto ranks = static_cast<double>(c.data_parallel_size() * c.parallel.context_parallel_size);
  const double expert_ranks = ranks / static_cast<double>(c.parallel.expert_parallel_size);
  // Elements that one pass over the ring sends.
  const double ring = (ranks - 1) / ranks * static_cast<double>(held.dense()) +
                      (expert_ranks - 1) / expert_ranks * static_cast<double>(held.experts);
  const auto microbatches = static_cast<double>(c.gradient_accumulation_steps);
  const double compute_bytes = c.bf16.enabled || c.fp16.enabled ? 2.0 : 4.0;
  switch (zero.stage) {
    case 0:
      return {2 * 4.0 * ring, 0};
    case 1:
      return {4.0 * ring, 4.0 * ring};
    case 2:
      return {4.0 * ring * microbatches, 4.0 * ring};
    default:
      return {4.0 * ring * microbatches, compute_bytes * ring * microbatches * (zero.reshard_after_forward ? 2 : 1)};
  }
}

}  // namespace taut::config
