// The runner over real messages (ranks are threads) against the same layers in one place.
#include "runtime/parallel/pipeline_runner.h"

#include <gtest/gtest.h>

#include <mutex>
#include <string>

#include "runtime/parallel/linear.h"
#include "taut.h"
#include "tests/runtime/thread_ranks.h"

namespace taut::parallel {
namespace {

using config::PipelineSchedule;

constexpr int64_t kRows = 3, kWidth = 8;

at::Tensor random(std::vector<int64_t> shape, uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed));
}
at::Tensor weight_of(int virtual_stage) {
  return random({kWidth, kWidth}, 100 + virtual_stage).requires_grad_();
}
at::Tensor input_of(int microbatch) {
  return random({kRows, kWidth}, microbatch);
}
at::Tensor layer(const at::Tensor& x, const at::Tensor& weight) {
  return x + at::tanh(parallel::linear(x, weight));
}

struct Job {
  PipelineSchedule schedule;
  int stages, microbatches, chunks = 1;
};

/// The weights' gradients of each virtual stage, and each stage's passes as they were called.
struct Outcome {
  std::vector<at::Tensor> gradients;
  std::vector<std::string> calls;
};

std::string call(char pass, int chunk, int microbatch) {
  return std::string(1, pass) + std::to_string(microbatch) + "." + std::to_string(chunk) + " ";
}

Outcome run_in_one_place(const Job& job) {
  Outcome outcome;
  std::vector<at::Tensor> weights;
  for (int i = 0; i < job.stages * job.chunks; ++i) weights.push_back(weight_of(i));
  for (int m = 0; m < job.microbatches; ++m) {
    at::Tensor x = input_of(m).requires_grad_();
    for (const at::Tensor& weight : weights) x = layer(x, weight);
    x.square().sum().backward();
  }
  for (const at::Tensor& weight : weights) outcome.gradients.push_back(weight.grad());
  return outcome;
}

/// Two steps over the same data, so that the gradients are twice those of one.
Outcome run_as_pipeline(const Job& job) {
  const int last = job.stages * job.chunks - 1;
  Outcome outcome;
  outcome.gradients.resize(last + 1);
  outcome.calls.resize(job.stages);
  std::mutex mutex;
  testing::run_ranks(job.stages, [&](comm::Group& pp) {
    const int stage = pp.rank();
    const Schedule schedule = make_schedule(job.schedule, job.stages, job.microbatches, job.chunks);
    DeferredWeightGradients deferred;
    std::vector<at::Tensor> weights;
    for (int c = 0; c < job.chunks; ++c) weights.push_back(weight_of(c * job.stages + stage));
    std::string calls;
    std::vector<int> prepared(job.chunks, 0);
    StageWork work;
    work.prepare = [&](int chunk, int m) { EXPECT_EQ(prepared[chunk]++ % job.microbatches, m); };
    work.forward = [&](int chunk, int m, const at::Tensor& received) {
      calls += call('F', chunk, m);
      const int here = chunk * job.stages + stage;
      EXPECT_EQ(received.defined(), here > 0);
      std::optional<DeferredWeightGradients::Scope> scope;
      if (schedule.splits_backward) scope.emplace(deferred);
      const at::Tensor input = here == 0 ? input_of(m).requires_grad_() : received;
      const at::Tensor output = layer(input, weights[chunk]);
      return here == last ? output.square().sum() : output;
    };
    work.backward = [&](int chunk, int m, const at::Tensor&, const at::Tensor& output, const at::Tensor& gradient) {
      calls += call('B', chunk, m);
      output.backward(gradient);
      if (schedule.splits_backward) deferred.finish_backward(chunk, m);
    };
    work.weight_gradients = [&](int chunk, int m) {
      calls += call('W', chunk, m);
      deferred.run(chunk, m);
    };
    PipelineRunner runner(pp, schedule.programs[stage], {kRows, kWidth}, at::TensorOptions().dtype(at::kFloat));
    runner.run(work);
    runner.run(work);
    const std::lock_guard lock(mutex);
    outcome.calls[stage] = calls;
    for (int c = 0; c < job.chunks; ++c) outcome.gradients[c * job.stages + stage] = weights[c].grad();
  });
  return outcome;
}

TEST(PipelineRunner, GivesTheGradientsOfOnePlaceInTheOrderOfItsProgram) {
  const Job jobs[] = {{PipelineSchedule::gpipe, 2, 4},
                      {PipelineSchedule::one_f_one_b, 3, 5},
                      {PipelineSchedule::one_f_one_b, 1, 3},
                      {PipelineSchedule::zero_bubble, 2, 4},
                      {PipelineSchedule::zero_bubble, 4, 3},
                      {PipelineSchedule::interleaved_1f1b, 2, 4, 2},  // both directions carry both kinds
                      {PipelineSchedule::interleaved_1f1b, 2, 6, 3},
                      {PipelineSchedule::interleaved_1f1b, 3, 6, 2}};
  double largest = 0;
  for (const Job& job : jobs) {
    const std::string name = "schedule " + std::to_string(static_cast<int>(job.schedule)) + ", p " +
                             std::to_string(job.stages) + ", chunks " + std::to_string(job.chunks);
    const Outcome expected = run_in_one_place(job), got = run_as_pipeline(job);
    for (size_t i = 0; i < expected.gradients.size(); ++i) {
      const at::Tensor twice = 2 * expected.gradients[i];
      const double error = ((got.gradients[i] - twice).abs().max() / twice.abs().max()).item<double>();
      largest = std::max(largest, error);
      EXPECT_LE(error, 1e-6) << name << ", virtual stage " << i;
    }
    const Schedule schedule = make_schedule(job.schedule, job.stages, job.microbatches, job.chunks);
    for (int stage = 0; stage < job.stages; ++stage) {
      std::string passes;
      for (const Action& action : schedule.programs[stage]) {
        if (action.kind == ActionKind::forward) passes += call('F', action.chunk, action.microbatch);
        if (action.kind == ActionKind::backward) passes += call('B', action.chunk, action.microbatch);
        if (action.kind == ActionKind::weight_gradient) passes += call('W', action.chunk, action.microbatch);
      }
      EXPECT_EQ(got.calls[stage], passes + passes) << name << ", stage " << stage;
    }
  }
  std::printf("pipelines against one place: largest error %.1e\n", largest);
}

TEST(PipelineRunner, RefusesChunksWithoutStages) {
  testing::run_ranks(1, [](comm::Group& pp) {
    EXPECT_THROW(PipelineRunner(pp, interleaved(1, 2, 2).programs[0], {1}, at::TensorOptions()), Error);
  });
}

}  // namespace
}  // namespace taut::parallel
