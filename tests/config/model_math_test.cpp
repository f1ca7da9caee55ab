// Closed forms against published models and hand counts.
#include "runtime/config/model_math.h"

#include "tests/config/sample.h"

namespace taut::config {
namespace {

// GPT-2 (124M): 124,439,808 parameters with biases. Without the linear layers' biases, per layer 3·768 (qkv) + 768
// (out) + 3072 + 768 (MLP) = 6,912, that is 12 × 6,912 = 82,944 fewer.
TEST(ParameterCount, MatchesGpt2WithoutLinearBiases) {
  Model m;
  m.hidden_size = 768;
  m.num_layers = 12;
  m.num_attention_heads = 12;
  m.ffn_hidden_size = 3072;
  m.seq_length = 1024;
  m.vocab_size = 50257;
  m.normalization = Normalization::layernorm;
  m.activation = Activation::gelu;
  m.position_embedding = PositionEmbedding::learned;
  m.tie_embeddings = true;
  EXPECT_EQ(parameter_count(m), 124'439'808 - 82'944);
}

// LLaMA 7B: 6,738,415,616 parameters; no biases, untied, 32 heads.
TEST(ParameterCount, MatchesLlama7B) {
  Model m;
  m.hidden_size = 4096;
  m.num_layers = 32;
  m.num_attention_heads = 32;
  m.ffn_hidden_size = 11008;
  m.vocab_size = 32000;
  m.tie_embeddings = false;
  EXPECT_EQ(parameter_count(m), 6'738'415'616);
}

// Llama 3 8B: 8,030,261,248 parameters; 8 key/value heads.
TEST(ParameterCount, MatchesLlama3WithGroupedQueries) {
  Model m;
  m.hidden_size = 4096;
  m.num_layers = 32;
  m.num_attention_heads = 32;
  m.num_query_groups = 8;
  m.ffn_hidden_size = 14336;
  m.vocab_size = 128256;
  m.tie_embeddings = false;
  EXPECT_EQ(parameter_count(m), 8'030'261'248);
}

// With one rank per stage and an untied head the stages hold each parameter once; a tied head is held twice.
TEST(ParametersPerStage, SumToTheModel) {
  for (const bool tied : {false, true}) {
    Config config =
        load_patched(tied ? R"({"parallel": {"pipeline_parallel_size": 3}})"
                          : R"({"parallel": {"pipeline_parallel_size": 3}, "model": {"tie_embeddings": false}})");
    int64_t sum = 0;
    for (int64_t pp = 0; pp < 3; ++pp) sum += parameter_count_on_stage(config, pp);
    EXPECT_EQ(sum, parameter_count(config.model) + (tied ? 512 * 64 : 0));
  }
}

TEST(ParametersPerStage, TensorParallelSplitsMatricesNotNorms) {
  const Config config = load_patched(R"({"parallel": {"tensor_parallel_size": 4}})");
  // Per layer: q, o 64×64, k, v 64×32, MLP 3 × 64×256; norms 2 × 64.
  const int64_t matrices = 4 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 256) + 512 * 64, norms = 4 * 2 * 64 + 64;
  EXPECT_EQ(parameter_count_on_stage(config, 0), matrices / 4 + norms);
}

TEST(LayersPerStage, AreEvenWithTheRemainderFirst) {
  Config config = load_patched(R"({"model": {"num_layers": 7}, "parallel": {"pipeline_parallel_size": 3}})");
  EXPECT_EQ(layers_per_stage(config), (std::vector<int64_t>{3, 2, 2}));
  config.parallel.pipeline_layers = {1, 1, 5};
  EXPECT_EQ(layers_per_stage(config), (std::vector<int64_t>{1, 1, 5}));
}

// torchtitan's formula for Llama 3 8B at 8192 tokens: 6 × (N − embedding) + 6 × layers × heads × head size × seq.
TEST(Flops, FollowTheCausalConvention) {
  Model m;
  m.hidden_size = 4096;
  m.num_layers = 32;
  m.num_attention_heads = 32;
  m.num_query_groups = 8;
  m.ffn_hidden_size = 14336;
  m.vocab_size = 128256;
  m.seq_length = 8192;
  m.tie_embeddings = false;
  const double norms = 65.0 * 4096;  // no matrix products
  const double want = 6.0 * (8'030'261'248.0 - 128256.0 * 4096 - norms) + 6.0 * 32 * 32 * 128 * 8192;
  EXPECT_NEAR(flops_per_token(m) / want, 1.0, 1e-12);
}

// Korthikanti et al.: GPT-3 175B, tensor parallel 8, pipeline parallel 8, micro batch 1, no recomputation: 66.84 GiB of
// activations with three interleaved chunks a stage, which keep 1 + (p-1)/(p·3) times what plain 1f1b keeps.
TEST(Memory, ActivationsMatchTheMeasured175B) {
  Json json = small_config();
  json["model"] = Json::parse(R"({"hidden_size": 12288, "num_layers": 96, "num_attention_heads": 96, "seq_length": 2048,
                                  "vocab_size": 51200, "activation": "gelu"})");
  json["parallel"] = Json::parse(R"({"tensor_parallel_size": 8, "pipeline_parallel_size": 8})");
  json["train_batch_size"] = 64;
  json["train_micro_batch_size_per_gpu"] = 1;
  json["bf16"] = Json::parse(R"({"enabled": true})");
  Config config = from_json(json, ".");
  validate(config);
  const double gib = memory_on_stage(config, 0).activations / (1024.0 * 1024 * 1024);
  EXPECT_NEAR(gib * (1.0 + 7.0 / (8.0 * 3.0)), 66.84, 0.01);
}

TEST(Memory, CountsSixteenBytesAParameterForAdam) {
  const Config config = load_patched("{}");
  const MemoryEstimate memory = memory_on_stage(config, 0);
  EXPECT_DOUBLE_EQ(memory.weights + memory.gradients + memory.optimizer,
                   16.0 * static_cast<double>(parameter_count(config.model)));
}

TEST(Memory, GpipeKeepsEveryMicrobatch) {
  const auto activations = [](const char* schedule) {
    const std::string patch =
        std::string(R"({"parallel": {"pipeline_parallel_size": 2, "pipeline_schedule": ")") + schedule + "\"}}";
    return memory_on_stage(load_patched(patch), 0).activations;
  };
  EXPECT_DOUBLE_EQ(activations("gpipe") / activations("1f1b"), 8.0 / 2.0);  // 8 microbatches, 2 stages
}

}  // namespace
}  // namespace taut::config
