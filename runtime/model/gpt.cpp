#include "runtime/model/gpt.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>

#include "runtime/config/pipeline_math.h"
#include "runtime/model/fused.h"

namespace taut::model {
namespace {

constexpr double kNormEpsilon = 1e-5;
constexpr double kInitialDeviation = 0.02;
constexpr double kRopeBase = 10000.0;

/// One seed out of several numbers (splitmix64's finaliser over each).
uint64_t mix(std::initializer_list<uint64_t> values) {
  uint64_t state = 0;
  for (const uint64_t value : values) {
    state += value + 0x9e3779b97f4a7c15ull;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9ull;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebull;
    state ^= state >> 31;
  }
  return state;
}

}  // namespace

StagePlan plan_stage(const config::Config& config, int pp, int chunk) {
  const auto layers = config::layers_per_virtual_stage(config);
  const size_t own = static_cast<size_t>(chunk * config.parallel.pipeline_parallel_size + pp);
  StagePlan plan;
  for (size_t stage = 0; stage < own; ++stage) plan.first_layer += layers[stage];
  plan.layers = layers[own];
  plan.first = own == 0;
  plan.last = own + 1 == layers.size();
  return plan;
}

GptStage::GptStage(const config::Model& shape, const StagePlan& plan, parallel::TensorParallel& tp, int64_t seed,
                   at::Device device)
    : shape_(shape), plan_(plan), tp_(tp), seed_(seed), device_(device) {
  if (shape_.num_query_groups == 0) shape_.num_query_groups = shape_.num_attention_heads;
  if (shape_.ffn_hidden_size == 0) shape_.ffn_hidden_size = 4 * shape_.hidden_size;
  const std::vector<int64_t> vocab_shape{shape_.vocab_size, shape_.hidden_size};
  const parallel::Shard vocab_rows{0, {shape_.vocab_size}};
  if (plan_.first) {
    word_embedding_ = add_parameter("embedding.weight", vocab_shape, vocab_rows, kInitialDeviation);
    if (shape_.position_embedding == config::PositionEmbedding::learned) {
      position_embedding_ =
          add_parameter("position_embedding.weight", {shape_.seq_length, shape_.hidden_size}, {}, kInitialDeviation);
    }
  }
  for (int64_t i = 0; i < plan_.layers; ++i) add_layer(plan_.first_layer + i);
  if (plan_.last) {
    final_norm_ = add_norm("final_norm");
    at::Tensor head;
    if (!shape_.tie_embeddings) {
      head = add_parameter("head.weight", vocab_shape, vocab_rows, kInitialDeviation);
    } else if (plan_.first) {
      head = word_embedding_;
    } else {
      head = add_parameter("embedding.weight", vocab_shape, vocab_rows, kInitialDeviation);
      parameters_.back().second_copy = true;
    }
    head_ = parallel::ColumnParallelLinear("head", head, tp_);
  }
  if (shape_.position_embedding == config::PositionEmbedding::rope) {
    const int64_t half = shape_.hidden_size / shape_.num_attention_heads / 2;
    const at::Tensor exponent = at::arange(half, at::kDouble) / static_cast<double>(half);
    const at::Tensor angle = at::outer(at::arange(shape_.seq_length, at::kDouble), at::pow(kRopeBase, exponent.neg()));
    rope_cos_ = angle.cos().to(at::kFloat).to(device_);
    rope_sin_ = angle.sin().to(at::kFloat).to(device_);
  }
}

at::Tensor GptStage::add_parameter(const std::string& name, std::vector<int64_t> shape, parallel::Shard shard,
                                   double standard_deviation) {
  const uint64_t name_hash = static_cast<uint64_t>(comm::content_id(name));
  auto generator = at::make_generator<at::CPUGeneratorImpl>(mix({static_cast<uint64_t>(seed_), name_hash}));
  const at::Tensor full = at::empty(shape, at::kFloat);
  if (standard_deviation > 0) full.normal_(0.0, standard_deviation, generator);
  parallel::Parameter parameter;
  parameter.name = name;
  parameter.value = parallel::take_shard(full, shard, tp_.rank(), tp_.size()).to(device_);
  parameter.full_shape = std::move(shape);
  parameter.shard = std::move(shard);
  parameter.value.requires_grad_();
  parameters_.push_back(std::move(parameter));
  return parameters_.back().value;
}

GptStage::Norm GptStage::add_norm(const std::string& name) {
  const at::NoGradGuard no_grad;
  Norm norm;
  norm.weight = add_parameter(name + ".weight", {shape_.hidden_size}, {}, 0.0);
  norm.weight.fill_(1.0);
  parameters_.back().decay = false;
  if (shape_.normalization == config::Normalization::layernorm) {
    norm.bias = add_parameter(name + ".bias", {shape_.hidden_size}, {}, 0.0);
    norm.bias.zero_();
    parameters_.back().decay = false;
  }
  return norm;
}

void GptStage::add_layer(int64_t index) {
  const std::string name = "layers." + std::to_string(index);
  const int64_t hidden = shape_.hidden_size, head_dim = hidden / shape_.num_attention_heads;
  const int64_t group_rows = shape_.num_query_groups * head_dim, ffn = shape_.ffn_hidden_size;
  // Output projections start smaller, so that the residual stream's variance does not grow with depth (GPT-2).
  const double output_deviation = kInitialDeviation / std::sqrt(2.0 * static_cast<double>(shape_.num_layers));

  Layer layer;
  layer.attention_norm = add_norm(name + ".attention_norm");
  const std::string qkv = name + ".attention.qkv.weight";
  layer.qkv = {
      qkv,
      add_parameter(qkv, {hidden + 2 * group_rows, hidden}, {0, {hidden, group_rows, group_rows}}, kInitialDeviation),
      tp_};
  layer.out = {add_parameter(name + ".attention.out.weight", {hidden, hidden}, {1, {hidden}}, output_deviation), tp_};
  layer.mlp_norm = add_norm(name + ".mlp_norm");
  const bool gated = shape_.activation == config::Activation::swiglu;
  const std::string up = name + (gated ? ".mlp.gate_up.weight" : ".mlp.up.weight");
  const std::vector<int64_t> blocks = gated ? std::vector<int64_t>{ffn, ffn} : std::vector<int64_t>{ffn};
  layer.up = {up, add_parameter(up, {gated ? 2 * ffn : ffn, hidden}, {0, blocks}, kInitialDeviation), tp_};
  layer.down = {add_parameter(name + ".mlp.down.weight", {hidden, ffn}, {1, {ffn}}, output_deviation), tp_};
  layers_.push_back(std::move(layer));
}

at::Tensor GptStage::normalize(const at::Tensor& input, const Norm& norm) const {
  if (shape_.normalization == config::Normalization::layernorm) {
    return at::layer_norm(input, {shape_.hidden_size}, norm.weight, norm.bias, kNormEpsilon);
  }
  return rms_norm(input, norm.weight, kNormEpsilon);
}

at::Tensor GptStage::attention(const at::Tensor& qkv) const {
  const int64_t batch = qkv.size(0), seq = qkv.size(1);
  const int64_t head_dim = shape_.hidden_size / shape_.num_attention_heads;
  const int64_t heads = shape_.num_attention_heads / tp_.size(), groups = shape_.num_query_groups / tp_.size();
  const at::Tensor split = qkv.view({batch, seq, heads + 2 * groups, head_dim});
  at::Tensor query_key = split.narrow(2, 0, heads + groups);
  if (rope_cos_.defined()) query_key = rope(query_key, rope_cos_.narrow(0, 0, seq), rope_sin_.narrow(0, 0, seq));
  const at::Tensor query = query_key.narrow(2, 0, heads).transpose(1, 2);
  at::Tensor key = query_key.narrow(2, heads, groups).transpose(1, 2);
  at::Tensor value = split.narrow(2, heads + groups, groups).transpose(1, 2);
  if (groups < heads) {
    key = key.repeat_interleave(heads / groups, 1);
    value = value.repeat_interleave(heads / groups, 1);
  }
  const at::Tensor context = at::scaled_dot_product_attention(query, key, value, {}, 0.0, /*is_causal=*/true);
  return context.transpose(1, 2).reshape({batch, seq, heads * head_dim});
}

at::Tensor GptStage::activate(const at::Tensor& up) const {
  if (shape_.activation == config::Activation::gelu) return at::gelu(up);
  const auto halves = up.chunk(2, -1);
  return at::silu(halves[0]) * halves[1];
}

at::Tensor GptStage::drop(const at::Tensor& input, const MicrobatchId& id, int64_t layer, int64_t site) const {
  if (shape_.dropout <= 0) return input;
  const double keep = 1.0 - shape_.dropout;
  std::vector<at::Tensor> masks;
  for (int64_t row = 0; row < input.size(0); ++row) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(
        mix({static_cast<uint64_t>(seed_), static_cast<uint64_t>(id.step), static_cast<uint64_t>(id.first_sample + row),
             static_cast<uint64_t>(layer), static_cast<uint64_t>(site)}));
    masks.push_back(at::empty({input.size(1), input.size(2)}, at::kFloat).bernoulli_(keep, generator));
  }
  return input * at::stack(masks).div_(keep).to(input.device());
}

at::Tensor GptStage::forward(const at::Tensor& input, const MicrobatchId& id) {
  at::Tensor x = input;
  if (plan_.first) {
    x = parallel::vocab_parallel_embedding(word_embedding_, input, tp_);
    if (position_embedding_.defined()) x = x + position_embedding_.narrow(0, 0, input.size(1));
    x = drop(x, id, /*layer=*/0, /*site=*/0);
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    const int64_t index = plan_.first_layer + static_cast<int64_t>(i);
    const at::Tensor attended = layer.out.forward(attention(layer.qkv.forward(normalize(x, layer.attention_norm))));
    x = x + drop(attended, id, index, /*site=*/1);
    const at::Tensor mixed = layer.down.forward(activate(layer.up.forward(normalize(x, layer.mlp_norm))));
    x = x + drop(mixed, id, index, /*site=*/2);
  }
  return x;
}

at::Tensor GptStage::loss(const at::Tensor& hidden, const at::Tensor& labels) {
  const at::Tensor logits = head_.forward(normalize(hidden, final_norm_));
  return parallel::vocab_parallel_cross_entropy(logits.flatten(0, 1), labels.flatten(), shape_.vocab_size, tp_);
}

}  // namespace taut::model
