// What `taut train --dry-run` shows.
#include "runtime/config/layout.h"

#include "tests/config/sample.h"

namespace taut::config {
namespace {

constexpr const char* kMesh =
    R"({"world_size": 8, "parallel": {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "pipeline_schedule": "gpipe"}})";

TEST(Layout, ShowsMeshBatchAndStages) {
  const std::string text = layout_text(load_patched(kMesh));
  EXPECT_PRED2(contains, text, "8 ranks = 2 data × 2 tensor × 2 pipeline (gpipe)");
  EXPECT_PRED2(contains, text,
               "16 samples = 2 per microbatch × 4 microbatches × 2 data-parallel ranks; 512 tokens a step");
  EXPECT_PRED2(contains, text, "\nstage 1         2  ");
}

TEST(Layout, JsonHoldsTheSameNumbers) {
  const Json json = layout_json(load_patched(kMesh));
  EXPECT_EQ(json["mesh"], Json::parse(R"({"dp": 2, "tp": 2, "pp": 2, "cp": 1, "ep": 1})"));
  EXPECT_EQ(json["batch"]["train_batch_size"], 2 * 4 * 2);
  EXPECT_EQ(json["stages"].size(), 2u);
  for (const Json& stage : json["stages"]) {
    const Json& memory = stage["memory_bytes"];
    double sum = 0;
    for (const auto& [part, bytes] : memory.items()) {
      if (part != "total" && part != "host") sum += bytes.get<double>();
    }
    EXPECT_DOUBLE_EQ(memory["total"].get<double>(), sum);
  }
}

// GPT-3 175B (hidden 12288, 96 layers) over 512 ranks. Closed forms: a layer has 12 h² matrix elements, so a stage of
// 12 layers 144 h² / 8 on each of 8 tensor-parallel ranks; the tied table is held by the first and the last stage.
constexpr const char* k512 = R"({"world_size": 512, "train_batch_size": 512, "train_micro_batch_size_per_gpu": 1,
  "model": {"hidden_size": 12288, "num_layers": 96, "num_attention_heads": 96, "num_query_groups": 96,
            "ffn_hidden_size": 49152, "seq_length": 2048, "vocab_size": 51200, "activation": "gelu"},
  "parallel": {"tensor_parallel_size": 8, "pipeline_parallel_size": 8}})";

TEST(Layout, Of512RanksFollowsTheClosedForms) {
  const Json json = layout_json(load_patched(k512));
  EXPECT_EQ(json["mesh"]["dp"], 8);
  EXPECT_EQ(json["batch"]["gradient_accumulation_steps"], 64);
  const double h = 12288, matrices = 144 * h * h / 8, table = 51200 * h / 8, norms = 24 * h;
  const std::vector<double> want{matrices + norms + table, matrices + norms, matrices + norms + table + h};
  const std::vector<size_t> stages{0, 4, 7};
  for (size_t i = 0; i < stages.size(); ++i) {
    const Json& stage = json["stages"][stages[i]];
    EXPECT_EQ(stage["parameters_per_rank"].get<double>(), want[i]) << "stage " << stages[i];
    EXPECT_DOUBLE_EQ(stage["memory_bytes"]["weights"].get<double>(), 4 * want[i]);
    EXPECT_DOUBLE_EQ(stage["memory_bytes"]["optimizer"].get<double>(), 8 * want[i]);
    // A ring all-reduce over 8 ranks sends 2 · 7/8 of the fp32 gradients.
    EXPECT_DOUBLE_EQ(stage["sent_bytes_per_step"]["gradients"].get<double>(), 2 * 7.0 / 8 * 4 * want[i]);
  }
  EXPECT_DOUBLE_EQ(json["pipeline"]["ideal_bubble_fraction"].get<double>(), 7.0 / (64 + 7));
  const Json groups = Json::parse(R"([{"kind": "tp", "groups": 64, "size": 8, "stride": 1},
                                      {"kind": "dp", "groups": 64, "size": 8, "stride": 8},
                                      {"kind": "pp", "groups": 64, "size": 8, "stride": 64}])");
  EXPECT_EQ(json["groups"], groups);
}

}  // namespace
}  // namespace taut::config
