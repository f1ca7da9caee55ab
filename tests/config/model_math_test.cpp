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

// 4 experts of 3 × 64 × 256, a router of 4 × 64 a layer; each token visits 2.
TEST(Experts, AreCountedWholeAndPerRank) {
  Config config = from_json(merge_patch(small_config(), Json::parse(R"({"model": {"num_experts": 4}})")), ".");
  config.world_size = 2;
  config.parallel.expert_parallel_size = 2;
  const int64_t attention = 2 * 64 * 64 + 2 * 64 * 32, expert = 3 * 64 * 256, router = 4 * 64, norms = 2 * 64;
  EXPECT_EQ(parameter_count(config.model), 4 * (attention + 4 * expert + router + norms) + 64 + 512 * 64);
  EXPECT_EQ(parameter_count_on_stage(config, 0), 4 * (attention + 2 * expert + router + norms) + 64 + 512 * 64);
  config.parallel.expert_placement = {{3, 1, 0}, {2}};
  EXPECT_EQ(held_parameters(config, 0, 0).experts, 4 * 3 * expert);
  EXPECT_EQ(held_parameters(config, 0, 1).experts, 4 * expert);
  EXPECT_DOUBLE_EQ(flops_per_token(config.model),
                   6.0 * (4 * (attention + 2 * expert + router) + 512 * 64) + 6.0 * 4 * 64 * 32);
}

}  // namespace
}  // namespace taut::config
