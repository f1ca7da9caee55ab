// Buckets, gradient reduction, weight gathering and the optimizer at every ZeRO stage, on ranks that are threads.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "runtime/optim/adamw.h"
#include "runtime/optim/grad_norm.h"
#include "runtime/optim/loss_scaler.h"
#include "runtime/parallel/gradient_reduction.h"
#include "runtime/parallel/parameter_gathering.h"
#include "taut.h"
#include "tests/runtime/thread_ranks.h"

namespace taut::parallel {
namespace {

/// Two units of one matrix each and a small vector, as a model would list them.
std::vector<Parameter> small_model() {
  std::vector<Parameter> parameters(3);
  const char* names[] = {"layers.0.weight", "layers.1.norm.weight", "layers.1.weight"};
  const std::vector<int64_t> shapes[] = {{7, 5}, {5}, {5, 5}};
  for (int i = 0; i < 3; ++i) {
    parameters[i].name = names[i];
    parameters[i].unit = i == 0 ? 0 : 1;
    parameters[i].decay = i != 1;
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(i + 1));
    parameters[i].value = at::randn(shapes[i], generator).requires_grad_();
  }
  return parameters;
}

at::Tensor loss_of(const std::vector<Parameter>& p, const at::Tensor& x) {
  return at::linear(at::tanh(at::linear(x, p[0].value.t())) * p[1].value, p[2].value).square().sum();
}

at::Tensor input(int microbatch, int rank) {
  return at::randn({3, 7},
                   at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(100 + 10 * microbatch + rank)));
}

FlatSettings settings(int stage, comm::Group* group) {
  FlatSettings s;
  s.zero_stage = stage;
  s.bucket_elements = 40;  // the 35 elements of the first matrix fill one
  s.dense_group = group;
  return s;
}

at::Tensor through_units(ParameterGathering& gathering, const std::vector<Parameter>& p, const at::Tensor& x) {
  at::Tensor y = gathering.enter(x, 0);
  y = gathering.exit(at::tanh(at::linear(y, p[0].value.t())), 0);
  y = gathering.enter(y, 1);
  y = gathering.exit(at::linear(y * p[1].value, p[2].value), 1, /*stays=*/true);
  return y.square().sum();
}

/// The weights after three steps of two microbatches on `ranks` replicas, by plain autograd and LibTorch's AdamW.
std::vector<at::Tensor> reference(int ranks) {
  std::vector<Parameter> p = small_model();
  torch::optim::AdamW decayed({p[0].value, p[2].value},
                              torch::optim::AdamWOptions(0.01).betas({0.9, 0.95}).eps(1e-8).weight_decay(0.1));
  torch::optim::AdamW plain({p[1].value},
                            torch::optim::AdamWOptions(0.01).betas({0.9, 0.95}).eps(1e-8).weight_decay(0.0));
  for (int step = 0; step < 3; ++step) {
    decayed.zero_grad();
    plain.zero_grad();
    for (int microbatch = 0; microbatch < 2; ++microbatch)
      for (int rank = 0; rank < ranks; ++rank) loss_of(p, input(2 * step + microbatch, rank)).backward();
    decayed.step();
    plain.step();
  }
  return {p[0].value.detach(), p[1].value.detach(), p[2].value.detach()};
}

struct Case {
  int stage, ranks;
  bool overlap, reshard, offload;
};

TEST(ZeRO, EveryStageTrainsAsOneRankDoes) {
  double largest = 0;
  std::mutex mutex;
  for (const Case& c : {Case{0, 2, true, true, false}, Case{1, 2, true, true, false}, Case{2, 2, true, true, false},
                        Case{3, 2, true, true, false}, Case{3, 2, true, false, false}, Case{3, 3, false, true, false},
                        Case{1, 3, false, true, true}, Case{2, 3, true, true, true}}) {
    const auto expected = reference(c.ranks);
    testing::run_ranks(c.ranks, [&](comm::Group& group) {
      FlatParameters flat = flatten(small_model(), settings(c.stage, &group));
      GradientReduction reduction(flat, {c.overlap, 2, false});
      ParameterGathering gathering(flat, {c.overlap, c.reshard, 1000, 1000});
      config::OptimizerParams params;
      config::OffloadOptimizer offload;
      if (c.offload) offload.device = config::OffloadDevice::cpu;
      optim::AdamW optimizer(flat, params, offload);
      for (int step = 0; step < 3; ++step) {
        reduction.begin_step(step);
        for (int microbatch = 0; microbatch < 2; ++microbatch)
          through_units(gathering, flat.parameters, input(2 * step + microbatch, group.rank()).requires_grad_())
              .backward();
        reduction.finish([&](size_t bucket) { optimizer.gradients_ready(bucket); });
        const at::NoGradGuard no_grad;
        optimizer.begin_step();
        for (size_t bucket = flat.buckets.size(); bucket-- > 0;) {
          optimizer.update(bucket, 0.01, 1.0);
          gathering.updated(bucket, step);
        }
        gathering.begin_next_step();
      }
      gathering.use(0);
      gathering.use(1);
      double error = 0;
      for (size_t i = 0; i < 3; ++i)
        error = std::max(error, (flat.parameters[i].value.detach() - expected[i]).abs().max().item<double>());
      const std::lock_guard lock(mutex);
      largest = std::max(largest, error);
    });
  }
  std::printf("weights after 3 steps against one rank and LibTorch's AdamW: largest error %.1e\n", largest);
  EXPECT_LE(largest, 2e-6);
}

TEST(ZeRO, ARankKeepsOnlyItsSlices) {
  testing::run_ranks(2, [](comm::Group& group) {
    for (const int stage : {0, 1, 2, 3}) {
      FlatParameters flat = flatten(small_model(), settings(stage, &group));
      int64_t values = 0, gradients = 0, whole = 0;
      for (const Bucket& bucket : flat.buckets) {
        whole += 4 * bucket.count;
        // A view's storage is the buffer that it looks into.
        values += static_cast<int64_t>(bucket.values.storage().nbytes());
        if (bucket.values_sharded) values += static_cast<int64_t>(bucket.own_values.storage().nbytes());
        gradients += static_cast<int64_t>(bucket.gradients.storage().nbytes());
        if (bucket.gradients_sharded) gradients += static_cast<int64_t>(bucket.own_gradients.storage().nbytes());
      }
      EXPECT_EQ(values, stage == 3 ? whole / 2 : whole) << "stage " << stage;
      EXPECT_EQ(gradients, stage >= 2 ? whole / 2 : whole) << "stage " << stage;
    }
  });
}

TEST(ZeRO, SmallParametersStayWholeUnderStage3) {
  testing::run_ranks(2, [](comm::Group& group) {
    FlatSettings s = settings(3, &group);
    s.persistence_threshold = 5;
    const FlatParameters flat = flatten(small_model(), s);
    for (const Bucket& bucket : flat.buckets)
      for (const Span& span : bucket.spans)
        EXPECT_EQ(bucket.values_sharded, flat.parameters[span.parameter].value.numel() > 5);
  });
}

TEST(GradientReduction, AParameterWithoutGradientIsAnError) {
  testing::run_ranks(2, [](comm::Group& group) {
    FlatParameters flat = flatten(small_model(), settings(0, &group));
    GradientReduction reduction(flat, {true, 1, false});
    reduction.begin_step(0);
    flat.parameters[2].value.sum().backward();  // shares its bucket with the norm, which gets none
    EXPECT_THROW(reduction.finish(), Error);
  });
}

TEST(GradientReduction, BucketSizeIsTheSettingOrAnEighthWithinBounds) {
  EXPECT_EQ(bucket_elements(25.0, 1 << 30), (25 << 20) / 4);
  EXPECT_EQ(bucket_elements(0.5, 1 << 30), (1 << 19) / 4);
  EXPECT_EQ(bucket_elements({}, 64 << 20), (8 << 20) / 4);
  EXPECT_EQ(bucket_elements({}, 1 << 10), (1 << 20) / 4);
  EXPECT_EQ(bucket_elements({}, int64_t{4} << 30), (25 << 20) / 4);
}

TEST(GradNorm, CountsEveryElementOnceAtEveryStage) {
  for (const int stage : {0, 1, 2, 3}) {
    testing::run_ranks(2, [stage](comm::Group& group) {
      FlatParameters flat = flatten(small_model(), settings(stage, &group));
      double expected = 0;
      float value = 1;
      for (Bucket& bucket : flat.buckets) {
        // Whole gradients 1, 2, 3, … over the parameters' own elements; each rank has what the stage leaves it.
        const at::Tensor whole = at::zeros({bucket.count});
        for (const Span& span : bucket.spans) {
          whole.narrow(0, span.offset, span.count).fill_(value);
          expected += static_cast<double>(span.count) * value * value;
          value += 1;
        }
        bucket.own_gradients.copy_(whole.narrow(0, bucket.own_offset(), bucket.own_count()));
      }
      const at::Tensor squares = optim::squared_grad_norm(flat, /*tp_rank=*/0);
      comm::all_reduce(group, squares);
      EXPECT_DOUBLE_EQ(squares.item<double>(), expected) << "stage " << stage;
    });
  }
}

// DeepSpeed's rules, followed by hand: hysteresis 2 forgives one overflow, then each one halves; a full window doubles.
TEST(LossScaler, HalvesAfterHysteresisAndDoublesAfterAWindow) {
  config::Fp16 fp16;
  fp16.enabled = true;
  fp16.initial_scale_power = 4;
  fp16.loss_scale_window = 2;
  fp16.hysteresis = 2;
  optim::LossScaler scaler(fp16);
  EXPECT_EQ(scaler.scale(), 16);
  EXPECT_FALSE(scaler.step(INFINITY));
  EXPECT_EQ(scaler.scale(), 16);
  EXPECT_FALSE(scaler.step(NAN));
  EXPECT_EQ(scaler.scale(), 8);
  EXPECT_FALSE(scaler.step(INFINITY));
  EXPECT_EQ(scaler.scale(), 4);
  EXPECT_TRUE(scaler.step(1.0));
  EXPECT_TRUE(scaler.step(1.0));
  EXPECT_EQ(scaler.scale(), 8);
  EXPECT_FALSE(scaler.step(INFINITY)) << "the window gave the hysteresis back";
  EXPECT_EQ(scaler.scale(), 8);
  fp16.min_loss_scale = 8;
  optim::LossScaler bounded(fp16);
  for (int i = 0; i < 9; ++i) bounded.step(INFINITY);
  EXPECT_EQ(bounded.scale(), 8);
}

TEST(LossScaler, StaticScaleStaysAndWithoutFp16EveryStepCounts) {
  config::Fp16 fp16;
  fp16.enabled = true;
  fp16.loss_scale = 128;
  optim::LossScaler fixed(fp16);
  EXPECT_FALSE(fixed.step(INFINITY));
  EXPECT_FALSE(fixed.step(INFINITY));
  EXPECT_EQ(fixed.scale(), 128);
  optim::LossScaler off{config::Fp16{}};
  EXPECT_TRUE(off.step(INFINITY));
  EXPECT_EQ(off.scale(), 1);
}

}  // namespace
}  // namespace taut::parallel
