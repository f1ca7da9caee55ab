// The batch rule. Cases and results from DeepSpeed's DeepSpeedConfig._set_batch_related_parameters.
#include "tests/config/sample.h"

namespace taut::config {
namespace {

struct BatchCase {
  int64_t ranks, train, micro, steps;          // 0 = left out
  int64_t want_train, want_micro, want_steps;  // 0 = an error
};

class Batch : public testing::TestWithParam<BatchCase> {};

TEST_P(Batch, FollowsDeepSpeed) {
  const BatchCase& c = GetParam();
  Config config = from_json(small_config(), ".");
  config.world_size = c.ranks;
  config.train_batch_size = c.train;
  config.train_micro_batch_size_per_gpu = c.micro;
  config.gradient_accumulation_steps = c.steps;
  if (c.want_train == 0) {
    EXPECT_THROW(validate(config), Error);
    return;
  }
  validate(config);
  EXPECT_EQ(config.train_batch_size, c.want_train);
  EXPECT_EQ(config.train_micro_batch_size_per_gpu, c.want_micro);
  EXPECT_EQ(config.gradient_accumulation_steps, c.want_steps);
}

INSTANTIATE_TEST_SUITE_P(Rules, Batch,
                         testing::Values(BatchCase{2, 32, 4, 4, 32, 4, 4},   // all three, right
                                         BatchCase{2, 10, 2, 3, 0, 0, 0},    // all three, 10 != 2 * 3 * 2
                                         BatchCase{2, 32, 4, 0, 32, 4, 4},   // train, micro -> steps
                                         BatchCase{2, 33, 4, 0, 0, 0, 0},    // … which does not come out even
                                         BatchCase{2, 32, 0, 4, 32, 4, 4},   // train, steps -> micro
                                         BatchCase{2, 32, 0, 5, 0, 0, 0},    //
                                         BatchCase{2, 0, 4, 4, 32, 4, 4},    // micro, steps -> train
                                         BatchCase{2, 32, 0, 0, 32, 16, 1},  // train alone
                                         BatchCase{3, 32, 0, 0, 0, 0, 0},    //
                                         BatchCase{2, 0, 4, 0, 8, 4, 1},     // micro alone
                                         BatchCase{2, 0, 0, 4, 0, 0, 0},     // steps alone
                                         BatchCase{2, 0, 0, 0, 0, 0, 0},     // nothing
                                         BatchCase{8, 4, 0, 0, 0, 0, 0}));   // fewer samples than ranks

TEST(BatchRule, CountsDataParallelRanksOnly) {
  const Config config =
      load_patched(R"({"world_size": 8, "parallel": {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}})");
  EXPECT_EQ(config.data_parallel_size(), 2);
  EXPECT_EQ(config.gradient_accumulation_steps, 4);  // 16 = 2 × 4 × 2
}

TEST(BatchRule, ErrorShowsBothSidesAndARepair) {
  const Error error =
      error_of([] { load_patched(R"({"train_batch_size": 10, "gradient_accumulation_steps": 3, "world_size": 2})"); });
  EXPECT_PRED2(contains, error.what(), "train_batch_size is 10");
  EXPECT_PRED2(contains, error.what(), "2 × 3 × 2");
  EXPECT_PRED2(contains, error.hint(), "12");
}

TEST(BatchRule, WorldSizeDefaultsToTheModelParallelSize) {
  EXPECT_EQ(load_patched("{}").world_size, 1);
  EXPECT_EQ(load_patched(R"({"parallel": {"tensor_parallel_size": 2, "pipeline_parallel_size": 4}})").world_size, 8);
}

TEST(BatchRule, ValidatingTwiceChangesNothing) {
  Config config = load_patched("{}");
  const Json once = to_json(config);
  validate(config);
  EXPECT_EQ(to_json(config), once);
}

}  // namespace
}  // namespace taut::config
