#include "runtime/config/model_math.h"

#include <algorithm>

#include "runtime/config/attention_mask.h"

namespace taut::config {
namespace {

int64_t ffn_size(const Model& m) {
  return m.ffn_hidden_size > 0 ? m.ffn_hidden_size : 4 * m.hidden_size;
}

int64_t norm_parameters(const Model& m) {
  return m.normalization == Normalization::layernorm ? 2 * m.hidden_size : m.hidden_size;
}

// Query and output projections [h, h]; key and value [h, groups × head]; MLP.
int64_t layer_matrix_parameters(const Model& m) {
  const int64_t groups = m.num_query_groups > 0 ? m.num_query_groups : m.num_attention_heads;
  const int64_t key_value = groups * (m.hidden_size / m.num_attention_heads);
  const int64_t attention = 2 * m.hidden_size * m.hidden_size + 2 * m.hidden_size * key_value;
  const int64_t matrices = m.activation == Activation::swiglu ? 3 : 2;
  return attention + matrices * m.hidden_size * ffn_size(m);
}

int64_t position_parameters(const Model& m) {
  return m.position_embedding == PositionEmbedding::learned ? m.seq_length * m.hidden_size : 0;
}

}  // namespace

std::vector<int64_t> layers_per_stage(const Config& config) {
  if (config.parallel.pipeline_layers) return *config.parallel.pipeline_layers;
  const int64_t stages = config.parallel.pipeline_parallel_size, layers = config.model.num_layers;
  std::vector<int64_t> split(static_cast<size_t>(stages), layers / stages);
  for (int64_t stage = 0; stage < layers % stages; ++stage) ++split[static_cast<size_t>(stage)];
  return split;
}

int64_t parameter_count(const Model& m) {
  const int64_t embedding = m.vocab_size * m.hidden_size;
  const int64_t layer = layer_matrix_parameters(m) + 2 * norm_parameters(m);
  return embedding + position_parameters(m) + m.num_layers * layer + norm_parameters(m) +
         (m.tie_embeddings ? 0 : embedding);
}

int64_t parameter_count_on_stage(const Config& config, int64_t pp) {
  const Model& m = config.model;
  const int64_t stages = config.parallel.pipeline_parallel_size, tp = config.parallel.tensor_parallel_size;
  const int64_t layers = layers_per_stage(config)[static_cast<size_t>(pp)];
  const int64_t embedding = m.vocab_size * m.hidden_size / tp;
  int64_t count = layers * (layer_matrix_parameters(m) / tp + 2 * norm_parameters(m));
  if (pp == 0) count += embedding + position_parameters(m);
  if (pp == stages - 1) count += norm_parameters(m) + (m.tie_embeddings && stages == 1 ? 0 : embedding);
  return count;
}

double flops_per_token(const Model& m) {
  const double matrices = static_cast<double>(m.num_layers) * static_cast<double>(layer_matrix_parameters(m)) +
                          static_cast<double>(m.vocab_size) * static_cast<double>(m.hidden_size);
  const double seq = static_cast<double>(m.seq_length);
  const double keys_per_query =
      m.attention == Attention::dense ? seq / 2.0 : static_cast<double>(visible_pairs(attention_mask(m))) / seq;
  return 6.0 * matrices +
         12.0 * static_cast<double>(m.num_layers) * static_cast<double>(m.hidden_size) * keys_per_query;
}

MemoryEstimate memory_on_stage(const Config& config, int64_t pp) {
  const Model& m = config.model;
  const double parameters = static_cast<double>(parameter_count_on_stage(config, pp));
  const double t = static_cast<double>(config.parallel.tensor_parallel_size);
  const double s = static_cast<double>(m.seq_length), b = static_cast<double>(config.train_micro_batch_size_per_gpu);
  const double h = static_cast<double>(m.hidden_size), a = static_cast<double>(m.num_attention_heads);
  const int64_t stages = config.parallel.pipeline_parallel_size, microbatches = config.gradient_accumulation_steps;
  // Without a pipeline each microbatch's backward follows its forward.
  int64_t in_flight = std::min(stages - pp, microbatches);
  if (stages > 1 && config.parallel.pipeline_schedule == PipelineSchedule::gpipe) in_flight = microbatches;
  const double layers = static_cast<double>(layers_per_stage(config)[static_cast<size_t>(pp)]);
  const double precision = config.bf16.enabled || config.fp16.enabled ? 1.0 : 2.0;
  double activations =
      precision * layers * s * b * h * (10.0 + 24.0 / t + 5.0 * a * s / (h * t)) * static_cast<double>(in_flight);
  if (pp == stages - 1) activations += 4.0 * s * b * static_cast<double>(m.vocab_size) / t;
  return {4.0 * parameters, 4.0 * parameters, 8.0 * parameters, activations};
}

}  // namespace taut::config
