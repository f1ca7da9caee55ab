#include "runtime/optim/lr_schedule.h"

#include <gtest/gtest.h>

namespace taut::optim {
namespace {

TEST(LearningRate, WarmsUpLinearlyThenFollowsTheCosine) {
  const config::Scheduler scheduler{config::SchedulerType::WarmupCosineLR, {110, 10, 0.1, 0.2}};
  EXPECT_DOUBLE_EQ(learning_rate(scheduler, 2.0, 0, 999), 0.2);     // warmup_min_ratio · lr
  EXPECT_DOUBLE_EQ(learning_rate(scheduler, 2.0, 5, 999), 1.1);     // half-way
  EXPECT_DOUBLE_EQ(learning_rate(scheduler, 2.0, 10, 999), 2.0);    // the top
  EXPECT_NEAR(learning_rate(scheduler, 2.0, 60, 999), 1.2, 1e-12);  // middle of the cosine: (1 + 0.2) / 2 · lr
  EXPECT_NEAR(learning_rate(scheduler, 2.0, 110, 999), 0.4, 1e-12);
  EXPECT_NEAR(learning_rate(scheduler, 2.0, 500, 999), 0.4, 1e-12);  // stays there
}

TEST(LearningRate, TotalStepsDefaultToTheRunsLength) {
  const config::Scheduler scheduler{config::SchedulerType::WarmupCosineLR, {0, 0, 0.0, 0.0}};
  EXPECT_NEAR(learning_rate(scheduler, 1.0, 20, 40), 0.5, 1e-12);
  EXPECT_NEAR(learning_rate(scheduler, 1.0, 40, 40), 0.0, 1e-12);
}

TEST(LearningRate, OtherSchedulesHoldTheRate) {
  EXPECT_EQ(learning_rate({config::SchedulerType::constant, {100, 10, 0.0, 0.0}}, 0.3, 0, 100), 0.3);
  EXPECT_EQ(learning_rate({config::SchedulerType::WarmupLR, {100, 10, 0.0, 0.0}}, 0.3, 50, 100), 0.3);
  EXPECT_DOUBLE_EQ(learning_rate({config::SchedulerType::WarmupLR, {100, 10, 0.0, 0.0}}, 0.3, 5, 100), 0.15);
}

}  // namespace
}  // namespace taut::optim
