// The memory model against what the allocator counted: every rank of a handful of layouts trains three steps under a
// tracer, and the largest peak in its TAUT_MEMORY rows is held against memory_on_stage.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/config/load.h"
#include "runtime/config/memory.h"
#include "tests/runtime/rank_spawner.h"
#include "tracer/store/reader.h"

namespace taut::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Not modelled: the step's scalars, alignment, the loader's batch. Everything larger is.
constexpr double kTolerance = 0.10;

// Large enough for fixed costs not to matter (tens of MB), small enough for a second of CPU.
const json kConfig = json::parse(R"({
  "model": {"hidden_size": 192, "num_layers": 4, "num_attention_heads": 6, "ffn_hidden_size": 512, "seq_length": 128,
            "vocab_size": 1536},
  "data": {"mock": true, "num_workers": 0}, "trace": {"torch_ops": false, "sample_hz": 0},
  "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "train_steps": 3, "world_size": 1})");

struct Case {
  const char* name;
  const char* changes;
};

struct Measured {
  int64_t rank, pp, ep, peak;
};

std::vector<Measured> measure(const fs::path& folder, const fs::path& config) {
  const std::string trace = (folder / "run.db").string(), output = (folder / "output").string();
  const std::string command = "OMP_NUM_THREADS=1 timeout 120 '" TAUT_BIN_DIR "/taut' -q train '" + config.string() +
                              "' --trace '" + trace + "' >'" + output + "' 2>&1";
  if (std::system(command.c_str()) != 0) {
    std::ifstream in(output);
    ADD_FAILURE() << std::string(std::istreambuf_iterator<char>(in), {});
    return {};
  }
  const store::Reader reader(trace);
  std::vector<Measured> ranks;
  for (const auto& row : reader
                             .query("SELECT r.rank, r.pp, r.ep, max(m.allocated), count(*) FROM TAUT_MEMORY m JOIN "
                                    "TAUT_RANK r USING (globalPid) WHERE m.allocated > 0 GROUP BY r.rank")
                             .rows) {
    EXPECT_EQ(row[4].integer, 3) << "one row a step";
    ranks.push_back({row[0].integer, row[1].integer, row[2].integer, row[3].integer});
  }
  return ranks;
}

class MemoryModel : public ::testing::TestWithParam<Case> {};

TEST_P(MemoryModel, IsTheAllocatorsPeak) {
  const ScratchFolder folder;
  json changed = kConfig;
  changed.merge_patch(json::parse(GetParam().changes));
  const fs::path path = folder.path() / "config.json";
  std::ofstream(path) << changed.dump();
  const config::Config config = config::load_file(path);

  const std::vector<Measured> ranks = measure(folder.path(), path);
  ASSERT_EQ(ranks.size(), static_cast<size_t>(config.world_size));
  for (const Measured& rank : ranks) {
    const config::MemoryEstimate estimate = config::memory_on_stage(config, rank.pp, rank.ep);
    const double expected = estimate.total() + estimate.host;  // no GPU: the host's memory is the device's
    const auto peak = static_cast<double>(rank.peak);
    std::printf("%-24s rank %lld  allocator %7.2f MB, model %7.2f MB (%+.1f %%)\n", GetParam().name,
                static_cast<long long>(rank.rank), peak / 1e6, expected / 1e6, 100 * (expected / peak - 1));
    EXPECT_LE(std::abs(expected / peak - 1), kTolerance) << "rank " << rank.rank;
  }
}

constexpr Case kCases[] = {
    {"Fp32", "{}"},
    {"Bf16LargeVocabulary", R"({"bf16": {"enabled": true}, "model": {"vocab_size": 6144}})"},
    {"GroupedGeluLayernorm",
     R"({"model": {"num_query_groups": 2, "activation": "gelu", "normalization": "layernorm", "tie_embeddings": false,
         "position_embedding": "learned"}})"},
    {"Bf16TensorParallel", R"({"world_size": 2, "bf16": {"enabled": true}, "parallel": {"tensor_parallel_size": 2}})"},
    {"Pipeline", R"({"world_size": 2, "gradient_accumulation_steps": 4, "parallel": {"pipeline_parallel_size": 2}})"},
    {"GpipeUneven", R"({"world_size": 2, "gradient_accumulation_steps": 2,
         "parallel": {"pipeline_parallel_size": 2, "pipeline_layers": [3, 1], "pipeline_schedule": "gpipe"}})"},
    {"ZeroBubble", R"({"world_size": 2, "gradient_accumulation_steps": 4,
         "parallel": {"pipeline_parallel_size": 2, "pipeline_schedule": "zero_bubble"}})"},
    {"ZeroBubbleZeroTwo", R"({"world_size": 4, "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2},
         "parallel": {"pipeline_parallel_size": 2, "pipeline_schedule": "zero_bubble"}})"},
    {"ZeroOne", R"({"world_size": 2, "zero_optimization": {"stage": 1}})"},
    {"ZeroThree",
     R"({"world_size": 2, "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 1000}})"},
};

INSTANTIATE_TEST_SUITE_P(Layouts, MemoryModel, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace taut::testing
