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

// Query and output projections [h, h]; key and value [h, groups × head].
int64_t attention_parameters(const Model& m) {
  const int64_t groups = m.num_query_groups > 0 ? m.num_query_groups : m.num_attention_heads;
  const int64_t key_value = groups * (m.hidden_size / m.num_attention_heads);
  return 2 * m.hidden_size * m.hidden_size + 2 * m.hidden_size * key_value;
}

// Of the MLP, or of one expert.
int64_t mlp_parameters(const Model& m) {
  const int64_t matrices = m.activation == Activation::swiglu ? 3 : 2;
  return matrices * m.hidden_size * ffn_size(m);
}

int64_t router_parameters(const Model& m) {
  return m.num_experts * m.hidden_size;
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
  const int64_t mlps = std::max<int64_t>(1, m.num_experts) * mlp_parameters(m);
  const int64_t layer = attention_parameters(m) + mlps + router_parameters(m) + 2 * norm_parameters(m);
  return embedding + position_parameters(m) + m.num_layers * layer + norm_parameters(m) +
         (m.tie_embeddings ? 0 : embedding);
}

int64_t experts_on_rank(const Config& config, int64_t ep) {
  const auto& placement = config.parallel.expert_placement;
  if (placement) return static_cast<int64_t>((*placement)[static_cast<size_t>(ep)].size());
  return config.model.num_experts / config.parallel.expert_parallel_size;
}

int64_t fullest_expert_rank(const Config& config) {
  int64_t fullest = 0;
  for (int64_t ep = 1; ep < config.parallel.expert_parallel_size; ++ep) {
    if (experts_on_rank(config, ep) > experts_on_rank(config, fullest)) fullest = ep;
  }
  return fullest;
}

std::vector<HeldTensors> held_tensors(const Config& config, int64_t pp, int64_t ep) {
  const Model& m = config.model;
  const int64_t stages = config.parallel.pipeline_parallel_size, tp = config.parallel.tensor_parallel_size;
  const int64_t layers = layers_per_stage(config)[static_cast<size_t>(pp)], h = m.hidden_size, ffn = ffn_size(m);
  const int64_t table = m.vocab_size * h / tp, norm_tensors = norm_parameters(m) / h;
  const bool first = pp == 0, last = pp == stages - 1, gated = m.activation == Activation::swiglu;
  const int64_t mlps = layers * (m.num_experts > 0 ? experts_on_rank(config, ep) : 1);
  const TensorKind mlp_kind = m.num_experts > 0 ? TensorKind::expert : TensorKind::matrix;
  std::vector<HeldTensors> held = {
      {TensorKind::matrix, layers, (attention_parameters(m) - h * h) / tp, true},  // query, key and value in one
      {TensorKind::matrix, layers, h * h / tp, true},
      {mlp_kind, mlps, (gated ? 2 : 1) * h * ffn / tp, true},
      {mlp_kind, mlps, h * ffn / tp, true},
      {TensorKind::replicated, 2 * layers * norm_tensors, h, true},
  };
  if (m.num_experts > 0) held.push_back({TensorKind::replicated, layers, router_parameters(m), true});
  if (first && position_parameters(m) > 0) held.push_back({TensorKind::replicated, 1, position_parameters(m), false});
  if (last) held.push_back({TensorKind::replicated, norm_tensors, h, false});
  if (last) held.push_back({TensorKind::matrix, 1, table, false});
  if (first && !(m.tie_embeddings && last)) held.push_back({TensorKind::embedding, 1, table, false});
  return held;
}

HeldParameters held_parameters(const Config& config, int64_t pp, int64_t ep) {
  HeldParameters sum;
  for (const HeldTensors& tensors : held_tensors(config, pp, ep)) {
    const int64_t elements = tensors.count * tensors.elements;
    switch (tensors.kind) {
      case TensorKind::matrix:
        sum.matrices += elements;
        break;
      case TensorKind::embedding:
        sum.embedding += elements;
        break;
      case TensorKind::replicated:
        sum.replicated += elements;
        break;
      case TensorKind::expert:
        sum.experts += elements;
        break;
    }
  }
  return sum;
}

int64_t parameter_count_on_stage(const Config& config, int64_t pp, int64_t ep) {
  return held_parameters(config, pp, ep).total();
}

double flops_per_token(const Model& m) {
  const int64_t mlps =
      m.num_experts > 0 ? m.moe_router_topk * mlp_parameters(m) + router_parameters(m) : mlp_parameters(m);
  const double matrices = static_cast<double>(m.num_layers) * static_cast<double>(attention_parameters(m) + mlps) +
                          static_cast<double>(m.vocab_size) * static_cast<double>(m.hidden_size);
  const double seq = static_cast<double>(m.seq_length);
  const double keys_per_query =
      m.attention == Attention::dense ? seq / 2.0 : static_cast<double>(visible_pairs(attention_mask(m))) / seq;
  return 6.0 * matrices +
         12.0 * static_cast<double>(m.num_layers) * static_cast<double>(m.hidden_size) * keys_per_query;
}

}  // namespace taut::config
