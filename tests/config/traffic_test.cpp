// Volumes against the ZeRO paper's closed forms, counted by hand.
#include "runtime/config/traffic.h"

#include "runtime/config/model_math.h"
#include "tests/config/sample.h"

namespace taut::config {
namespace {

Config zero(int64_t stage, int64_t microbatches) {
  Config config = load_patched("{}");
  config.world_size = 4;
  config.zero_optimization.stage = stage;
  config.gradient_accumulation_steps = microbatches;
  return config;
}

// Rajbhandari et al., section 7: 2Ψ for data parallelism and for stages 1 and 2 without accumulation, 3Ψ for stage 3;
// here in units of (N − 1)/N · Ψ fp32 bytes.
TEST(ParameterTraffic, IsTheZeroPapers) {
  const double ring = 3.0 / 4 * 4 * static_cast<double>(parameter_count(zero(0, 1).model));
  const double want[4][2] = {{2, 0}, {1, 1}, {1, 1}, {1, 2}};
  for (int64_t stage = 0; stage < 4; ++stage) {
    const ParameterTraffic sent = parameter_traffic(zero(stage, 1), 0);
    EXPECT_DOUBLE_EQ(sent.gradients, want[stage][0] * ring) << stage;
    EXPECT_DOUBLE_EQ(sent.weights, want[stage][1] * ring) << stage;
  }
  EXPECT_DOUBLE_EQ(parameter_traffic(zero(1, 8), 0).gradients, ring) << "once a step";
  EXPECT_DOUBLE_EQ(parameter_traffic(zero(2, 8), 0).gradients, 8 * ring) << "once a microbatch";
  Config kept = zero(3, 8);
  kept.zero_optimization.reshard_after_forward = false;
  EXPECT_DOUBLE_EQ(parameter_traffic(kept, 0).weights, 8 * ring);
}

TEST(ParameterTraffic, IsNothingForOneRank) {
  Config config = zero(3, 2);
  config.world_size = 1;
  EXPECT_EQ(parameter_traffic(config, 0).gradients, 0);
  EXPECT_EQ(parameter_traffic(config, 0).weights, 0);
}

// 8 experts over 4 ranks: each is held once, so that experts send nothing and the rest goes round all 4 ranks.
TEST(ParameterTraffic, LeavesOutExpertsThatNobodyElseHolds) {
  Config config = zero(0, 1);
  config.model.num_experts = 8;
  config.parallel.expert_parallel_size = 4;
  const double dense = static_cast<double>(held_parameters(config, 0).dense());
  EXPECT_DOUBLE_EQ(parameter_traffic(config, 0).gradients, 2 * 3.0 / 4 * 4 * dense);
  config.parallel.expert_parallel_size = 2;  // pairs hold the same experts
  const double experts = static_cast<double>(held_parameters(config, 0).experts);
  EXPECT_DOUBLE_EQ(parameter_traffic(config, 0).gradients, 2 * 4 * (3.0 / 4 * dense + 1.0 / 2 * experts));
}

}  // namespace
}  // namespace taut::config
