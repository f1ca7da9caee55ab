// The proof of every parallel feature: the same run on one process and on several gives the same losses and weights.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>

#include "runtime/checkpoint/safetensors.h"
#include "tests/runtime/rank_spawner.h"

namespace taut::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// fp32 sums in another order differ by 1e-7 a step; 1e-4 is a thousand times that, and far below any real mistake
// (a gradient scaled wrongly, a stale weight), which shows in the second digit.
constexpr double kTolerance = 1e-4;

struct Layout {
  const char* name;
  int ranks;
  json changes;
};

json parallel(int tp, int pp, json more = json::object()) {
  more["tensor_parallel_size"] = tp;
  more["pipeline_parallel_size"] = pp;
  return {{"parallel", more}};
}

json merged(json a, const json& b) {
  a.merge_patch(b);
  return a;
}

// Fewer, larger microbatches where every layer communicates: it saves time on a busy machine.
const json kTwoMicrobatches = {{"train_micro_batch_size_per_gpu", 4}};

void expect_same_run(const char* name, const RunResult& expected, const RunResult& run) {
  ASSERT_TRUE(run.ok()) << name << "\n" << run.all_errors();
  ASSERT_EQ(run.steps.size(), expected.steps.size()) << name << "\n" << run.all_errors();
  double loss_error = 0, norm_error = 0;
  for (size_t i = 0; i < run.steps.size(); ++i) {
    EXPECT_EQ(run.steps[i].step, static_cast<int64_t>(i));
    EXPECT_EQ(run.steps[i].lr, expected.steps[i].lr);
    loss_error = std::max(loss_error, std::abs(run.steps[i].loss - expected.steps[i].loss));
    norm_error = std::max(norm_error, std::abs(run.steps[i].grad_norm / expected.steps[i].grad_norm - 1));
  }
  std::printf("%-36s largest error: loss %.1e, gradient norm %.1e (relative)  [%.1f s]\n", name, loss_error, norm_error,
              run.seconds);
  EXPECT_LE(loss_error, kTolerance) << name;
  EXPECT_LE(norm_error, kTolerance) << name;
}

void expect_same_runs(const json& variant, const std::vector<Layout>& layouts) {
  const ScratchFolder folder;
  const RunResult expected = run_job({1, write_config(folder.path(), variant)}, folder.path());
  ASSERT_TRUE(expected.ok()) << expected.all_errors();
  ASSERT_EQ(expected.steps.size(), 20u);
  EXPECT_LT(expected.steps.back().loss, expected.steps.front().loss - 0.3) << "the model learns something";
  for (const Layout& layout : layouts) {
    expect_same_run(
        layout.name, expected,
        run_job({layout.ranks, write_config(folder.path(), merged(variant, layout.changes))}, folder.path()));
  }
}

TEST(Parity, RopeRmsnormSwigluGroupedQueriesTied) {
  expect_same_runs(
      json::object(),
      {{"dp 2", 2, json::object()},
       {"dp 2, small buckets, no overlap",
        2,
        {{"communication", {{"bucket_size_mb", 0.01}, {"overlap_grad_reduce", false}}}}},
       {"accumulation, 8 microbatches", 1, {{"train_micro_batch_size_per_gpu", 1}}},
       {"tp 2", 2, merged(parallel(2, 1), kTwoMicrobatches)},
       {"tp 2, gathered outputs", 2, merged(parallel(2, 1, {{"gather_output", true}}), kTwoMicrobatches)},
       {"pp 2, gpipe", 2, parallel(1, 2, {{"pipeline_schedule", "gpipe"}})},
       {"pp 2, 1f1b", 2, parallel(1, 2)},
       {"pp 2, 1f1b, emulated link", 2,
        merged(parallel(1, 2), {{"communication", {{"emulated_link", {{"gbit_per_s", 10}, {"latency_us", 50}}}}}})},
       {"tp 2 × pp 2 × dp 2", 8, parallel(2, 2)}});
}

TEST(Parity, LearnedPositionsLayernormGeluUntiedWithDropout) {
  expect_same_runs(
      {{"model",
        {{"position_embedding", "learned"},
         {"normalization", "layernorm"},
         {"activation", "gelu"},
         {"tie_embeddings", false},
         {"num_query_groups", 4},
         {"dropout", 0.1},
         {"num_layers", 3}}}},
      {{"dp 2", 2, json::object()}, {"tp 2 × pp 2, uneven stages", 4, parallel(2, 2, {{"pipeline_layers", {2, 1}}})}});
}

// Tied embeddings on the first and the last stage everywhere. Small buckets: several are reduced while W passes of
// earlier microbatches are still to come.
TEST(Parity, PipelineSchedulesWithChunksSplitBackwardsAndUnevenStages) {
  const json interleaved = {{"pipeline_schedule", "interleaved_1f1b"}, {"virtual_pipeline_stages", 2}};
  const json zero_bubble = {{"pipeline_schedule", "zero_bubble"}};
  const json small_buckets = {{"communication", {{"bucket_size_mb", 0.01}}}};
  expect_same_runs({{"model", {{"num_layers", 4}}}},
                   {{"pp 2 × 2 chunks, interleaved", 2, parallel(1, 2, interleaved)},
                    {"pp 2, zero_bubble", 2, parallel(1, 2, zero_bubble)},
                    {"pp 3, uneven stages, zero_bubble, 1 microbatch", 3,
                     merged(parallel(1, 3, merged(zero_bubble, {{"pipeline_layers", {1, 2, 1}}})),
                            {{"train_micro_batch_size_per_gpu", 8}})},
                    {"pp 2 × 2 chunks × dp 2, interleaved", 4, merged(parallel(1, 2, interleaved), small_buckets)},
                    {"pp 2 × dp 2, zero_bubble", 4, merged(parallel(1, 2, zero_bubble), small_buckets)}});
  expect_same_runs({{"model", {{"num_layers", 5}}}},
                   {{"pp 4, uneven stages, 1f1b", 4, parallel(1, 4, {{"pipeline_layers", {2, 1, 1, 1}}})},
                    {"tp 2 × pp 2, uneven stages, zero_bubble", 4,
                     merged(parallel(2, 2, merged(zero_bubble, {{"pipeline_layers", {3, 2}}})), kTwoMicrobatches)}});
}

// Auxiliary losses are means over a microbatch, so microbatches have the same size everywhere.
TEST(Parity, ExpertsOverRanksInEveryCompany) {
  const json experts = {
      {"model",
       {{"num_experts", 4}, {"moe_router_topk", 2}, {"moe_aux_loss_coeff", 0.02}, {"moe_z_loss_coeff", 0.002}}}};
  const auto zero = [](int stage) { return json{{"zero_optimization", {{"stage", stage}}}}; };
  const json ep = parallel(1, 1, {{"expert_parallel_size", 2}});
  expect_same_runs(
      experts,
      {{"experts, dp 2, each holds all", 2, json::object()},
       {"experts, ep 2", 2, ep},
       {"experts, ep 2, uneven placement", 2,
        parallel(1, 1, {{"expert_parallel_size", 2}, {"expert_placement", {{3, 0, 1}, {2}}}})},
       {"experts, ep 2, zero 2", 2, merged(ep, zero(2))},
       {"experts, ep 2 × edp 2, zero 3", 4, merged(ep, zero(3))},
       {"experts, ep 2, recomputed", 2, merged(ep, {{"activation_checkpointing", {{"mode", "full"}}}})},
       {"experts, cp 2 = ep 2", 2, parallel(1, 1, {{"expert_parallel_size", 2}, {"context_parallel_size", 2}})},
       {"experts, tp 2, sequence parallel", 2, parallel(2, 1, {{"sequence_parallel", true}})},
       {"experts, tp 2 × ep 2", 4, parallel(2, 1, {{"expert_parallel_size", 2}})},
       {"experts, pp 2 × ep 2, zero_bubble", 4,
        parallel(1, 2, {{"expert_parallel_size", 2}, {"pipeline_schedule", "zero_bubble"}})}});
  expect_same_runs(
      merged(experts, {{"model", {{"moe_router_topk", 1}, {"moe_capacity_factor", 1.0}}}}),
      {{"capacity, ep 2", 2, ep},
       {"capacity, cp 2 = ep 2", 2, parallel(1, 1, {{"expert_parallel_size", 2}, {"context_parallel_size", 2}})}});
}

/// The largest difference between tensors of the same name in two checkpoints' weights.
double weight_difference(const fs::path& a, const fs::path& b, size_t& compared) {
  const checkpoint::SafetensorsFile first(a), second(b);
  double largest = 0;
  for (const auto& [name, view] : second.tensors()) {
    const auto& other = first.expect(name, view.dtype, view.shape);
    ++compared;
    for (size_t i = 0; i < view.bytes; i += 4) {
      float x, y;
      std::memcpy(&x, view.data + i, 4);
      std::memcpy(&y, other.data + i, 4);
      largest = std::max(largest, std::abs(double(x) - double(y)));
    }
  }
  return largest;
}

TEST(Parity, FinalWeightsOfReplicasAndStagesAreTheOneProcessRuns) {
  const ScratchFolder folder;
  const auto train = [&](int ranks, const char* dir, const json& changes) {
    const json all = merged({{"checkpoint", {{"dir", dir}}}}, changes);
    const RunResult run = run_job({ranks, write_config(folder.path(), all)}, folder.path());
    EXPECT_TRUE(run.ok()) << run.all_errors();
    return folder.path() / dir / "step-20";
  };
  const fs::path one = train(1, "one", json::object()) / "weights-tp0-pp0.safetensors";
  const fs::path dp = train(2, "dp", json::object());
  const fs::path pp = train(2, "pp", parallel(1, 2));
  size_t compared = 0;
  double largest = weight_difference(one, dp / "weights-tp0-pp0.safetensors", compared);
  for (const char* stage : {"weights-tp0-pp0.safetensors", "weights-tp0-pp1.safetensors"}) {
    largest = std::max(largest, weight_difference(one, pp / stage, compared));
  }
  EXPECT_EQ(compared, 14u + 14u + 1u);  // the last stage's copy of the embedding as well
  std::printf("final weights: largest error %.1e\n", largest);
  // AdamW divides by the gradient's own size, so a coordinate whose gradient is rounding noise may move by lr either
  // way.
  EXPECT_LE(largest, 3e-4);
}

}  // namespace
}  // namespace taut::testing
