// Layouts of 512 ranks, looked at in this one process; the numbers are closed forms worked out by hand.
#include "runtime/train/dry_run.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "runtime/config/load.h"

namespace taut::train {
namespace {

config::Config config_of(const char* text) {
  config::Config config = config::from_json(config::Json::parse(text), ".");
  config::validate(config);
  return config;
}

// GPT-3 175B: 12 h² matrix elements and two norms a layer, a tied table of 51200 · h, one norm at the end.
TEST(DryRunOf512Ranks, TensorPipelineAndDataParallel) {
  const DryRun run = dry_run(config_of(R"({"world_size": 512, "train_batch_size": 128,
    "train_micro_batch_size_per_gpu": 1, "data": {"mock": true},
    "model": {"hidden_size": 12288, "num_layers": 96, "num_attention_heads": 96, "ffn_hidden_size": 49152,
              "seq_length": 2048, "vocab_size": 51200, "activation": "gelu"},
    "parallel": {"tensor_parallel_size": 8, "pipeline_parallel_size": 8}})"));
  const int64_t h = 12288, table = 51200 * h, stage = 12 * (12 * h * h / 8 + 2 * h);
  ASSERT_EQ(run.ranks.size(), 8u * 2);
  for (const DryRank& rank : run.ranks) {
    const bool first = rank.at.pp == 0, last = rank.at.pp == 7;
    EXPECT_EQ(rank.rank, rank.at.pp * 64 + rank.at.tp);
    EXPECT_EQ(rank.parameters, stage + (first || last ? table / 8 : 0) + (last ? h : 0)) << "rank " << rank.rank;
    EXPECT_EQ(rank.tensors, 12 * 6 + (first ? 1 : 0) + (last ? 2 : 0));
  }
  EXPECT_EQ(run.parameters, 96 * (12 * h * h + 2 * h) + table + h);
  EXPECT_EQ(std::count(run.schedule.begin(), run.schedule.end(), '\n'), 8) << "one line a stage";
}

// tp 4 × cp 2 × dp 16 × pp 4, 16 experts over 8 of the 32 data × context ranks: 2 experts a rank.
TEST(DryRunOf512Ranks, ExpertsContextAndInterleavedChunks) {
  const DryRun run = dry_run(config_of(R"({"world_size": 512, "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 8, "data": {"mock": true},
    "model": {"hidden_size": 4096, "num_layers": 32, "num_attention_heads": 32, "num_query_groups": 8,
              "ffn_hidden_size": 14336, "seq_length": 8192, "vocab_size": 32000, "num_experts": 16,
              "tie_embeddings": false},
    "parallel": {"tensor_parallel_size": 4, "context_parallel_size": 2, "pipeline_parallel_size": 4,
                 "expert_parallel_size": 8, "sequence_parallel": true, "pipeline_schedule": "interleaved_1f1b",
                 "virtual_pipeline_stages": 2}})"));
  const int64_t h = 4096, expert = 3 * h * 14336, attention = 2 * h * h + 2 * h * 1024, router = 16 * h;
  const int64_t stage = 8 * ((attention + 2 * expert) / 4 + router + 2 * h), table = 32000 * h;
  ASSERT_EQ(run.ranks.size(), 4u * 2 * 2);  // stages × first and last ep × first and last tp
  for (const DryRank& rank : run.ranks) {
    const bool first = rank.at.pp == 0, last = rank.at.pp == 3;
    EXPECT_EQ(rank.at.ep, (rank.at.dp * 2 + rank.at.cp) % 8);
    EXPECT_EQ(rank.parameters, stage + (first || last ? table / 4 : 0) + (last ? h : 0)) << "rank " << rank.rank;
  }
  EXPECT_EQ(run.parameters, 32 * (attention + 16 * expert + router + 2 * h) + 2 * table + h);
  const auto json = nlohmann::json::parse(dry_run_json(run));
  EXPECT_EQ(json["ranks"].size(), run.ranks.size());
  EXPECT_EQ(json["parameters"], run.parameters);
}

}  // namespace
}  // namespace taut::train
