// Replays against closed forms.
#include <gtest/gtest.h>

#include <cmath>

#include "analyzer/simulate/loader_queue.h"
#include "analyzer/simulate/pipeline.h"
#include "taut.h"

namespace taut::simulate {
namespace {

using config::PipelineSchedule;

PipelineCosts even_pipeline(PipelineSchedule schedule, int64_t stages, int64_t microbatches) {
  PipelineCosts costs;
  costs.schedule = schedule;
  costs.microbatches = microbatches;
  costs.forward.assign(static_cast<size_t>(stages), 1.0);
  costs.backward.assign(static_cast<size_t>(stages), 2.0);
  return costs;
}

TEST(PipelineReplay, EvenStagesHaveTheIdealBubble) {
  for (const PipelineSchedule schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b}) {
    for (int64_t p = 1; p <= 6; ++p) {
      for (int64_t m = 1; m <= 12; ++m) {
        const auto replay = replay_pipeline(even_pipeline(schedule, p, m));
        EXPECT_NEAR(replay.bubble_fraction, double(p - 1) / double(m + p - 1), 1e-12) << "p=" << p << " m=" << m;
        EXPECT_NEAR(replay.span(), 3.0 * double(m + p - 1), 1e-12);
      }
    }
  }
}

TEST(PipelineReplay, ChunksAndSplitBackwardsHaveTheirPapersBubble) {
  for (int64_t p = 2; p <= 6; ++p) {
    for (int64_t groups = 1; groups <= 4; ++groups) {
      const int64_t m = p * groups;
      for (int64_t v = 2; v <= 4; ++v) {
        PipelineCosts costs = even_pipeline(PipelineSchedule::interleaved_1f1b, p, m);
        costs.chunks = v;
        EXPECT_NEAR(replay_pipeline(costs).bubble_fraction, double(p - 1) / double(v * m + p - 1), 1e-12)
            << "p=" << p << " m=" << m << " v=" << v;
      }
      PipelineCosts costs = even_pipeline(PipelineSchedule::zero_bubble, p, m);
      costs.backward.assign(static_cast<size_t>(p), 1.0);
      costs.weight_gradient.assign(static_cast<size_t>(p), 1.0);
      EXPECT_NEAR(replay_pipeline(costs).bubble_fraction, double(p - 1) / double(3 * m + p - 1), 1e-12)
          << "p=" << p << " m=" << m;
    }
  }
}

TEST(PipelineReplay, SlowestStageSetsThePace) {
  // Stage 1 of 2 takes three times as long: m × its time, plus the first stage's first forward and last backward.
  PipelineCosts costs = even_pipeline(PipelineSchedule::gpipe, 2, 10);
  costs.forward[1] = 3;
  costs.backward[1] = 6;
  EXPECT_NEAR(replay_pipeline(costs).span(), 10 * 9 + 1 + 2, 1e-12);
}

TEST(PipelineReplay, TransfersLengthenTheRampOfGpipe) {
  // Forwards and backwards stream, so each boundary's transfer shows once per direction.
  PipelineCosts costs = even_pipeline(PipelineSchedule::gpipe, 4, 8);
  costs.transfer_forward = 0.5;
  costs.transfer_backward = 0.25;
  EXPECT_NEAR(replay_pipeline(costs).span(), 3.0 * (8 + 3) + 3 * 0.5 + 3 * 0.25, 1e-12);
}

TEST(PipelineReplay, RejectsNonsense) {
  EXPECT_THROW(replay_pipeline({}), Error);
  PipelineCosts costs = even_pipeline(PipelineSchedule::gpipe, 2, 4);
  costs.backward.pop_back();
  EXPECT_THROW(replay_pipeline(costs), Error);
  costs = even_pipeline(PipelineSchedule::gpipe, 2, 4);
  costs.forward[0] = std::nan("");
  EXPECT_THROW(replay_pipeline(costs), Error);
  costs = even_pipeline(PipelineSchedule::one_f_one_b, 2, 4);
  costs.chunks = 2;
  EXPECT_THROW(replay_pipeline(costs), Error);
  costs = even_pipeline(PipelineSchedule::interleaved_1f1b, 2, 5);
  costs.chunks = 2;
  EXPECT_THROW(replay_pipeline(costs), Error);
}

LoaderTrainer trainer(double think, double service) {
  return {.think_ms = std::vector<std::vector<double>>(20, {0.0, think}), .service_ms = {service}, .take_ms = 0};
}

TEST(LoaderReplay, InlineAddsItsService) {
  const auto replay = replay_loader({trainer(10, 30)}, {.workers = 0, .prefetch = 2});
  EXPECT_NEAR(replay.step_ms, 40, 1e-9);
  EXPECT_NEAR(replay.stall_ms, 30, 1e-9);
}

TEST(LoaderReplay, SteadyStateIsTheSlowerOfTrainerAndWorkers) {
  // w workers deliver a batch every service / w; the trainer needs one every 10.
  for (int64_t workers = 1; workers <= 8; ++workers) {
    for (const double service : {5.0, 10.0, 35.0, 77.0}) {
      const auto replay = replay_loader({trainer(10, service)}, {.workers = workers, .prefetch = 2});
      const double expected = std::max(10.0, service / double(workers));
      EXPECT_NEAR(replay.step_ms, expected, 0.03 * expected) << workers << " workers, service " << service;
    }
  }
}

TEST(LoaderReplay, DeeperQueueHidesSpreadButNotTooLowARate) {
  LoaderTrainer spread = trainer(10, 0);
  spread.service_ms = {4, 4, 4, 4, 4, 4, 4, 28};  // mean 7 < 10, every eighth batch takes 28
  const double shallow = replay_loader({spread}, {.workers = 1, .prefetch = 1}).stall_ms;
  const double deep = replay_loader({spread}, {.workers = 1, .prefetch = 4}).stall_ms;
  EXPECT_GT(shallow, 1.0);
  EXPECT_NEAR(deep, 0.0, 1e-9);
  const double overloaded = replay_loader({trainer(10, 20)}, {.workers = 1, .prefetch = 8}).stall_ms;
  EXPECT_NEAR(overloaded, 10.0, 0.5);
}

TEST(LoaderReplay, OneSlowLoaderHoldsUpEveryRank) {
  const auto replay = replay_loader({trainer(10, 1), trainer(10, 40)}, {.workers = 1, .prefetch = 2});
  EXPECT_NEAR(replay.step_ms, 40, 1.0);
  EXPECT_NEAR(replay.stall_ms, 15, 1.0);  // 30 on one of two ranks
}

TEST(LoaderReplay, RejectsNonsense) {
  EXPECT_THROW(replay_loader({}, {}), Error);
  LoaderTrainer empty = trainer(1, 1);
  empty.service_ms.clear();
  EXPECT_THROW(replay_loader({empty}, {}), Error);
}

}  // namespace
}  // namespace taut::simulate
