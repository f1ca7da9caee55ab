// The memory model against hand counts and published ratios; tests/runtime/memory_test.cpp holds it against the
// allocator.
#include "runtime/config/memory.h"

#include "runtime/config/model_math.h"
#include "tests/config/sample.h"

namespace taut::config {
namespace {

TEST(Memory, CountsSixteenBytesAParameterForAdam) {
  const Config config = load_patched("{}");
  const MemoryEstimate memory = memory_on_stage(config, 0);
  EXPECT_DOUBLE_EQ(memory.weights + memory.gradients + memory.optimizer,
                   16.0 * static_cast<double>(parameter_count(config.model)));
  EXPECT_EQ(memory.weight_copies, 0);
  // In bf16 two more for every matrix; norms are used in fp32.
  const MemoryEstimate mixed = memory_on_stage(load_patched(R"({"bf16": {"enabled": true}})"), 0);
  EXPECT_DOUBLE_EQ(mixed.weight_copies, 2.0 * static_cast<double>(parameter_count(config.model) - 9 * 64));
}

// small_config(): 2 × 32 tokens, h 64, f 256, 8 heads and 4 groups of 8, fp32. By hand, per token and layer:
// norms 2 (4·64 + 4 + 4·64), rotated query and key 4 (64 + 32), expanded key and value 4 · 2 · 64, output 4 · 64,
// log-sum-exp 4 · 8, SwiGLU 4 · 3 · 256; beside the four layers the final norm 2 · 4 · 64.
TEST(Memory, ActivationsAreWhatALayerKeeps) {
  // Norms; query, expanded keys and values, output, log-sum-exp; SwiGLU.
  const double layer = 2 * (4 * 64 + 4 + 4 * 64) + 4 * 64 + 4 * 2 * 64 + 4 * 64 + 4 * 8 + 4 * 3 * 256;
  const MemoryEstimate memory = memory_on_stage(load_patched("{}"), 0);
  EXPECT_DOUBLE_EQ(memory.activations, 64 * (4 * layer + 2 * 4 * 64));
  // 512 logits a token are less than backward needs in the last layer: there is the peak. With 2048 it is in the head.
  EXPECT_DOUBLE_EQ(memory.workspace, 64 * (4 * 64 + 4 * 2 * 256));
  EXPECT_DOUBLE_EQ(memory.logits, 0);
  EXPECT_DOUBLE_EQ(memory_on_stage(load_patched(R"({"model": {"vocab_size": 2048}})"), 0).logits, 64 * 2048 * 4);
}

TEST(Memory, GpipeKeepsEveryMicrobatch) {
  const auto in_flight = [](const char* schedule) {
    const std::string patch =
        std::string(R"({"parallel": {"pipeline_parallel_size": 2, "pipeline_schedule": ")") + schedule + "\"}}";
    return layers_in_flight(load_patched(patch), 0);
  };
  EXPECT_DOUBLE_EQ(in_flight("gpipe"), 2 * 8);  // 2 layers a stage, 8 microbatches
  EXPECT_DOUBLE_EQ(in_flight("1f1b"), 2 * 2);   // 2 stages
}

// Narayanan et al., arXiv 2104.04473, section 2.2: with v chunks a stage the first one keeps 1 + (p-1)/(p·v) times
// what plain 1f1b keeps.
TEST(Memory, InterleavingKeepsMoreByTheKnownFactor) {
  for (const int64_t p : {2, 4, 8}) {
    for (const int64_t v : {2, 3, 4}) {
      Config config = load_patched("{}");
      config.model.num_layers = p * v;
      config.parallel.pipeline_parallel_size = p;
      config.gradient_accumulation_steps = 4 * p;
      const double plain = layers_in_flight(config, 0);
      config.parallel.pipeline_schedule = PipelineSchedule::interleaved_1f1b;
      config.parallel.virtual_pipeline_stages = v;
      const double share = static_cast<double>(p - 1) / static_cast<double>(p * v);
      EXPECT_NEAR(layers_in_flight(config, 0) / plain, 1.0 + share, 1e-12) << "p " << p << ", v " << v;
    }
  }
}

}  // namespace
}  // namespace taut::config
