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
  EXPECT_PRED2(contains, text, "stage 1   2 layers");
}

TEST(Layout, JsonHoldsTheSameNumbers) {
  const Json json = layout_json(load_patched(kMesh));
  EXPECT_EQ(json["mesh"], Json::parse(R"({"dp": 2, "tp": 2, "pp": 2, "cp": 1})"));
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

}  // namespace
}  // namespace taut::config
