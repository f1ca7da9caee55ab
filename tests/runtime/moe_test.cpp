// The mixture-of-experts layer on every layout against a token-by-token formula in double: outputs and the gradients of
// router, experts and input, auxiliary losses included.
#include "runtime/model/moe.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <mutex>

#include "runtime/comm/collectives.h"
#include "runtime/model/grouped_linear.h"
#include "runtime/model/moe_router.h"
#include "taut.h"
#include "tests/runtime/moe_reference.h"
#include "tests/runtime/thread_ranks.h"

namespace taut::model {
namespace {

// Megatron's bound for gradients, 4 · 1.03^depth · ε, at depth 1.
constexpr double kTolerance = 4 * 1.03 * 1.1920929e-7;
constexpr int kMicrobatches = 4;
constexpr int64_t kBatch = 2;
constexpr double kAuxScale = 0.25;

config::Model small_model() {
  config::Model shape;
  shape.hidden_size = 16;
  shape.ffn_hidden_size = 24;
  shape.seq_length = 16;
  shape.num_experts = 8;
  shape.moe_router_topk = 2;
  shape.moe_aux_loss_coeff = 100;  // so large that the losses' gradients weigh as much as the others
  shape.moe_z_loss_coeff = 10;
  return shape;
}

struct Layout {
  int dp = 1, cp = 1, tp = 1, ep = 1;
  int ranks() const { return dp * cp * tp; }
};

at::Tensor random(at::IntArrayRef shape, int64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed)));
}

/// A parameter by its name, wide enough that experts differ and the router has clear favourites.
at::Tensor draw(const std::string& name, at::IntArrayRef shape) {
  return random(shape, comm::content_id(name)) * 0.3;
}

at::Tensor input_of(const config::Model& shape, int microbatch) {
  return random({kBatch, shape.seq_length, shape.hidden_size}, 100 + microbatch);
}

/// What flows back into the output.
at::Tensor output_gradient_of(const config::Model& shape, int microbatch) {
  return random({kBatch, shape.seq_length, shape.hidden_size}, 200 + microbatch);
}

/// Where cp rank `rank`'s equally long pieces of a sequence begin: zig-zag, or one piece under a sliding window.
std::vector<int64_t> pieces_of_sequence(const config::Model& shape, int rank, int ranks) {
  if (shape.attention == config::Attention::sliding_window) return {rank * shape.seq_length / ranks};
  const int64_t chunk = shape.seq_length / (2 * ranks);
  return {rank * chunk, (2 * ranks - 1 - rank) * chunk};
}

at::Tensor part_of_sequence(const config::Model& shape, const at::Tensor& full, int rank, int ranks) {
  std::vector<at::Tensor> parts;
  const std::vector<int64_t> pieces = pieces_of_sequence(shape, rank, ranks);
  const int64_t length = full.size(1) / (ranks * static_cast<int64_t>(pieces.size()));
  for (const int64_t first : pieces) parts.push_back(full.narrow(1, first, length));
  return at::cat(parts, 1);
}

struct Gradients {
  std::map<std::string, at::Tensor> of;  // full tensors, double, by name; "input" and "output" of all microbatches
  std::vector<int64_t> tokens, dropped;
};

Gradients reference(const config::Model& shape) {
  testing::MoeReference moe;
  const auto add = [&](const std::string& name, at::IntArrayRef size) {
    moe.parameters[name] = draw("layers.0.moe." + name, size).to(at::kDouble).requires_grad_();
  };
  const bool gated = shape.activation == config::Activation::swiglu;
  add("router.weight", {shape.num_experts, shape.hidden_size});
  for (int64_t e = 0; e < shape.num_experts; ++e) {
    const std::string name = "experts." + std::to_string(e);
    add(name + (gated ? ".gate_up.weight" : ".up.weight"),
        {gated ? 2 * shape.ffn_hidden_size : shape.ffn_hidden_size, shape.hidden_size});
    add(name + ".down.weight", {shape.hidden_size, shape.ffn_hidden_size});
  }
  std::vector<at::Tensor> inputs, outputs;
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (int m = 0; m < kMicrobatches; ++m) {
    inputs.push_back(input_of(shape, m).to(at::kDouble).requires_grad_());
    at::Tensor aux;
    const at::Tensor output = moe.forward(shape, inputs.back(), aux);
    outputs.push_back(output.detach());
    loss = loss + (output * output_gradient_of(shape, m)).sum() + kAuxScale * aux;
  }
  loss.backward();
  Gradients result;
  for (const auto& [name, value] : moe.parameters) {
    result.of[name] = value.grad().defined() ? value.grad() : at::zeros_like(value);
  }
  for (at::Tensor& input : inputs) input = input.grad();
  result.of["input"] = at::stack(inputs);
  result.of["output"] = at::stack(outputs);
  result.tokens = moe.tokens;
  result.dropped = moe.dropped;
  return result;
}

/// Adds a tp rank's shard into the full gradient.
void add_shard(at::Tensor& full, const at::Tensor& part, const parallel::Shard& shard, int rank, int ranks) {
  if (shard.dim < 0) {
    if (rank == 0) full.add_(part);
    return;
  }
  int64_t from = 0, to = 0;
  for (const int64_t block : shard.blocks) {
    const int64_t size = block / ranks;
    full.narrow(shard.dim, to + rank * size, size).add_(part.narrow(shard.dim, from, size));
    from += size;
    to += block;
  }
}

/// The layer as the layout's ranks run it, each its own microbatches and part of the sequence, with the reductions that
/// the trainer makes: plain sums of expert gradients over edp and of router gradients over dp × cp.
Gradients run_layout(const config::Model& shape, const Layout& layout,
                     const std::optional<ExpertPlacement>& wanted_placement = {}) {
  testing::Partition tp_groups(layout.dp * layout.cp), cp_groups(layout.dp * layout.tp),
      ep_groups(layout.dp * layout.cp / layout.ep * layout.tp);
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const int tp = rank % layout.tp, dc = rank / layout.tp, dp = dc / layout.cp;
    tp_groups[dc].push_back(rank);
    cp_groups[dp * layout.tp + tp].push_back(rank);
    ep_groups[dc / layout.ep * layout.tp + tp].push_back(rank);
  }
  config::Parallel parallel;
  parallel.expert_parallel_size = layout.ep;
  parallel.expert_placement = wanted_placement;
  const ExpertPlacement placement = place_experts(shape, parallel);

  Gradients result;
  result.of["input"] = at::zeros({kMicrobatches, kBatch, shape.seq_length, shape.hidden_size}, at::kDouble);
  result.of["output"] = at::zeros_like(result.of["input"]);
  result.tokens.resize(shape.num_experts);
  result.dropped.resize(shape.num_experts);
  std::mutex mutex;
  testing::run_grouped_ranks(
      layout.ranks(), {tp_groups, cp_groups, ep_groups}, [&](int rank, const std::vector<comm::Group*>& groups) {
        const int tp = rank % layout.tp, dc = rank / layout.tp, dp = dc / layout.cp, cp = dc % layout.cp;
        parallel::TensorParallel tensor_parallel{groups[0], false};
        std::vector<parallel::Parameter> parameters;
        MoeLayer layer(
            shape, 0, placement, {&tensor_parallel, groups[2], groups[1]}, 1, 1,
            [&](const std::string& name, std::vector<int64_t> size, parallel::Shard shard, double, bool expert) {
              parallel::Parameter parameter;
              parameter.name = name.substr(std::string("layers.0.moe.").size());
              parameter.value = parallel::take_shard(draw(name, size), shard, tp, layout.tp).requires_grad_();
              parameter.full_shape = size;
              parameter.shard = shard;
              parameter.expert = expert;
              parameters.push_back(parameter);
              return parameter.value;
            });
        std::vector<at::Tensor> inputs, outputs;
        for (int m = dp; m < kMicrobatches; m += layout.dp) {
          inputs.push_back(part_of_sequence(shape, input_of(shape, m), cp, layout.cp).requires_grad_());
          outputs.push_back(layer.forward(inputs.back(), kAuxScale));
          outputs.back().backward(part_of_sequence(shape, output_gradient_of(shape, m), cp, layout.cp));
        }
        const at::NoGradGuard no_grad;
        const std::lock_guard lock(mutex);
        for (const parallel::Parameter& parameter : parameters) {
          at::Tensor& full = result.of[parameter.name];
          if (!full.defined()) full = at::zeros(parameter.full_shape, at::kDouble);
          ASSERT_TRUE(parameter.value.grad().defined()) << parameter.name;
          add_shard(full, parameter.value.grad(), parameter.shard, tp, layout.tp);
          if (parameter.shard.dim < 0 && tp > 0) {  // complete on every tp rank, whoever comes first
            result.of["router on tp rank " + std::to_string(tp)] =
                result.of.contains("router on tp rank " + std::to_string(tp))
                    ? result.of["router on tp rank " + std::to_string(tp)] + parameter.value.grad()
                    : parameter.value.grad().to(at::kDouble);
          }
        }
        size_t i = 0;
        for (int m = dp; m < kMicrobatches; m += layout.dp, ++i) {
          const std::vector<int64_t> pieces = pieces_of_sequence(shape, cp, layout.cp);
          const int64_t length = inputs[i].size(1) / static_cast<int64_t>(pieces.size());
          for (size_t piece = 0; piece < pieces.size(); ++piece) {
            const int64_t from = static_cast<int64_t>(piece) * length, to = pieces[piece];
            if (tp == layout.tp - 1) {  // a rank other than the first, where there is one
              result.of["input"][m].narrow(1, to, length).add_(inputs[i].grad().narrow(1, from, length));
            }
            if (tp == 0) {
              result.of["output"][m].narrow(1, to, length).add_(outputs[i].narrow(1, from, length));
            }
          }
        }
        for (int64_t e = 0; e < shape.num_experts && tp == 0; ++e) {
          result.tokens[e] += layer.tokens()[e];
          result.dropped[e] += layer.dropped()[e];
        }
      });
  return result;
}

double relative_error(const at::Tensor& value, const at::Tensor& expected) {
  const double norm = expected.norm().item<double>(), difference = (value - expected).norm().item<double>();
  return norm > 0 ? difference / norm : difference;
}

/// The largest error by kind, printed.
double largest_error(const Gradients& actual, const Gradients& expected, const std::string& what) {
  std::map<std::string, double> by_kind;
  for (const auto& [name, value] : expected.of) {
    std::string kind = name.substr(0, name.find('.'));
    by_kind[kind] = std::max(by_kind[kind], relative_error(actual.of.at(name), value));
  }
  for (const auto& [name, value] : actual.of) {
    if (name.starts_with("router on")) {
      by_kind["router"] = std::max(by_kind["router"], relative_error(value, expected.of.at("router.weight")));
    }
  }
  double largest = 0;
  std::printf("%s:", what.c_str());
  for (const auto& [kind, error] : by_kind) {
    std::printf(" %s %.1e", kind.c_str(), error);
    largest = std::max(largest, error);
  }
  std::printf("\n");
  return largest;
}

std::string text_of(const Layout& layout) {
  return "dp" + std::to_string(layout.dp) + " cp" + std::to_string(layout.cp) + " tp" + std::to_string(layout.tp) +
         " ep" + std::to_string(layout.ep);
}

void expect_all_layouts_equal(const config::Model& shape, const std::vector<Layout>& layouts, const char* what) {
  const Gradients expected = reference(shape);
  for (const Layout& layout : layouts) {
    const Gradients actual = run_layout(shape, layout);
    EXPECT_LE(largest_error(actual, expected, std::string(what) + ", " + text_of(layout)), kTolerance);
    EXPECT_EQ(actual.tokens, expected.tokens) << text_of(layout);
    EXPECT_EQ(actual.dropped, expected.dropped) << text_of(layout);
  }
}

const std::vector<Layout> kLayouts = {{1, 1, 1, 1}, {2, 1, 1, 2}, {4, 1, 1, 4}, {4, 1, 1, 2}, {1, 1, 2, 1},
                                      {2, 1, 2, 2}, {1, 2, 1, 1}, {1, 2, 1, 2}, {2, 2, 1, 4}, {1, 2, 2, 2}};

TEST(MixtureOfExperts, EveryLayoutGivesTheFormulasGradients) {
  expect_all_layouts_equal(small_model(), kLayouts, "top 2");
}

TEST(MixtureOfExperts, TopOneTakesTheProbabilityItselfAsWeight) {
  config::Model shape = small_model();
  shape.moe_router_topk = 1;
  shape.activation = config::Activation::gelu;
  expect_all_layouts_equal(shape, {{1, 1, 1, 1}, {2, 1, 2, 2}, {1, 2, 1, 2}}, "top 1, gelu");
}

TEST(MixtureOfExperts, CapacityDropsTheSameTokensOnEveryLayout) {
  config::Model shape = small_model();
  for (const double factor : {0.5, 1.0}) {
    shape.moe_capacity_factor = factor;
    expect_all_layouts_equal(
        shape, {{1, 1, 1, 1}, {2, 1, 1, 2}, {2, 1, 2, 2}, {1, 2, 1, 1}, {1, 2, 1, 2}, {1, 4, 1, 4}}, "capacity");
  }
  shape.attention = config::Attention::sliding_window;  // cp ranks then hold other tokens
  expect_all_layouts_equal(shape, {{1, 2, 1, 1}, {1, 4, 1, 4}}, "capacity, sliding window");
  const Gradients expected = reference(shape);
  int64_t dropped = 0;
  for (const int64_t count : expected.dropped) dropped += count;
  EXPECT_GT(dropped, 0) << "the case drops nothing";
}

TEST(MixtureOfExperts, PlacementMovesExpertsAndChangesNothing) {
  const config::Model shape = small_model();
  const Gradients expected = reference(shape);
  const Gradients actual = run_layout(shape, {2, 1, 1, 2}, ExpertPlacement{{7, 2, 5}, {0, 6, 1, 4, 3}});
  EXPECT_LE(largest_error(actual, expected, "uneven placement"), kTolerance);
}

TEST(MixtureOfExperts, ExpertsThatNoTokenChoosesHaveZeroGradients) {
  config::Model shape = small_model();
  shape.num_experts = 64;  // 32 tokens a microbatch
  const Gradients expected = reference(shape);
  EXPECT_GT(std::count(expected.tokens.begin(), expected.tokens.end(), 0), 0) << "every expert was chosen";
  EXPECT_LE(largest_error(run_layout(shape, {2, 1, 1, 2}), expected, "idle experts"), kTolerance);
}

TEST(MixtureOfExperts, WrongScalesAreFound) {
  const config::Model shape = small_model();
  const Gradients expected = reference(shape), right = run_layout(shape, {2, 1, 1, 2});
  Gradients wrong = right;
  wrong.of["experts.0.down.weight"] = right.of.at("experts.0.down.weight") / 2;  // divided by ep
  EXPECT_GT(largest_error(wrong, expected, "control, expert gradient divided by ep"), 1000 * kTolerance);
  config::Model without = shape;
  without.moe_aux_loss_coeff = 0;
  EXPECT_GT(largest_error(right, reference(without), "control, no load-balancing loss"), 1000 * kTolerance);
  without = shape;
  without.moe_z_loss_coeff = 0;
  EXPECT_GT(largest_error(right, reference(without), "control, no z-loss"), 1000 * kTolerance);
}

TEST(MixtureOfExperts, CountsOncePerForwardWithGradient) {
  const config::Model shape = small_model();
  parallel::TensorParallel tp;
  MoeLayer layer(shape, 0, place_experts(shape, {}), {&tp, nullptr, nullptr}, 1, 1,
                 [](const std::string& name, std::vector<int64_t> size, parallel::Shard, double, bool) {
                   return draw(name, size).requires_grad_();
                 });
  const auto total = [&] {
    int64_t sum = 0;
    for (const int64_t count : layer.tokens()) sum += count;
    return sum;
  };
  {
    const at::NoGradGuard recomputed_later;
    layer.forward(input_of(shape, 0), 1);
  }
  EXPECT_EQ(total(), 0);
  layer.forward(input_of(shape, 0), 1);
  EXPECT_EQ(total(), 2 * kBatch * shape.seq_length);
  layer.mark_and_reset(0);
  EXPECT_EQ(total(), 0);
}

TEST(MixtureOfExperts, UnderAutocastRoutesInFp32AndMultipliesInBf16) {
  config::Model shape = small_model();
  parallel::TensorParallel tp;
  std::vector<at::Tensor> leaves;
  MoeLayer layer(shape, 0, place_experts(shape, {}), {&tp, nullptr, nullptr}, 1, 1,
                 [&](const std::string& name, std::vector<int64_t> size, parallel::Shard, double, bool) {
                   leaves.push_back(draw(name, size).requires_grad_());
                   return leaves.back();
                 });
  const at::Tensor x = input_of(shape, 0), gradient = output_gradient_of(shape, 0);
  const auto run = [&] {
    const at::Tensor y = layer.forward(x, kAuxScale);
    y.backward(gradient);
    return y.detach();
  };
  const at::Tensor full = run();
  const std::vector<int64_t> tokens = layer.tokens();
  std::vector<at::Tensor> expected;
  for (at::Tensor& leaf : leaves) {
    expected.push_back(leaf.grad());
    leaf.mutable_grad() = at::Tensor();
  }
  layer.mark_and_reset(0);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor half = run();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_EQ(layer.tokens(), tokens);
  EXPECT_EQ(half.scalar_type(), at::kFloat);
  double largest = relative_error(half, full);
  for (size_t i = 0; i < leaves.size(); ++i) {
    ASSERT_EQ(leaves[i].grad().scalar_type(), at::kFloat);
    largest = std::max(largest, relative_error(leaves[i].grad(), expected[i]));
  }
  std::printf("bf16 against fp32: largest error %.1e\n", largest);
  EXPECT_LE(largest, 2e-2);  // bf16 keeps 8 bits; three products one after another
  EXPECT_GT(largest, 1e-4) << "nothing was computed in bf16";
}

TEST(MixtureOfExperts, CapacityIsTheFactorTimesTheEvenShareRoundedUp) {
  EXPECT_EQ(expert_capacity(1.0, 2, 32, 8), 8);
  EXPECT_EQ(expert_capacity(1.25, 1, 10, 4), 4);  // 3.125
  EXPECT_EQ(expert_capacity(0.01, 1, 4, 64), 1);
}

TEST(MixtureOfExperts, RefusesAPlacementThatIsNone) {
  const config::Model shape = small_model();
  config::Parallel parallel;
  parallel.expert_parallel_size = 3;
  EXPECT_THROW(place_experts(shape, parallel), Error);  // 8 experts
  parallel.expert_parallel_size = 2;
  for (const ExpertPlacement& wrong : std::vector<ExpertPlacement>{{{0, 1, 2, 3, 4, 5, 6, 7}},
                                                                   {{0, 1, 2, 3, 4, 5, 6, 7}, {}},
                                                                   {{0, 1, 2, 3}, {4, 5, 6, 6}},
                                                                   {{0, 1, 2, 3}, {4, 5, 6, 8}},
                                                                   {{0, 1, 2, 3}, {4, 5, 6}}}) {
    parallel.expert_placement = wrong;
    EXPECT_THROW(place_experts(shape, parallel), Error);
  }
  parallel.expert_placement.reset();
  EXPECT_EQ(place_experts(shape, parallel), (ExpertPlacement{{0, 1, 2, 3}, {4, 5, 6, 7}}));
}

TEST(GroupedLinear, IsOneLinearPerGroup) {
  const at::Tensor x = random({7, 5}, 1).requires_grad_(), y = x.detach().clone().requires_grad_();
  const std::vector<int64_t> rows{3, 0, 4};
  std::vector<at::Tensor> weights, plain;
  for (int64_t i = 0; i < 3; ++i) {
    weights.push_back(random({6, 5}, 10 + i).requires_grad_());
    plain.push_back(weights.back().detach().clone().requires_grad_());
  }
  const at::Tensor gradient = random({7, 6}, 2);
  const at::Tensor output = grouped_linear(x, weights, rows);
  output.backward(gradient);
  const at::Tensor expected =
      at::cat({at::linear(y.narrow(0, 0, 3), plain[0]), at::linear(y.narrow(0, 3, 4), plain[2])});
  expected.backward(gradient);
  EXPECT_LE(relative_error(output, expected), kTolerance);
  EXPECT_LE(relative_error(x.grad(), y.grad()), kTolerance);
  EXPECT_LE(relative_error(weights[0].grad(), plain[0].grad()), kTolerance);
  EXPECT_LE(relative_error(weights[2].grad(), plain[2].grad()), kTolerance);
  EXPECT_TRUE(at::equal(weights[1].grad(), at::zeros({6, 5}))) << "an empty group has a gradient, too";
}

}  // namespace
}  // namespace taut::model
