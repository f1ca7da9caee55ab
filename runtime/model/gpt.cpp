#include "runtime/model/gpt.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>

#include <cmath>

#include "runtime/config/pipeline_math.h"
#include "runtime/model/attention.h"
#include "runtime/model/fused.h"
#include "runtime/parallel/context_parallel.h"
#include "runtime/parallel/recompute.h"

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

GptStage::GptStage(const config::Model& shape, const StagePlan& plan, const StageContext& context, int64_t seed,
                   at::Device device)
    : shape_(shape), plan_(plan), context_(context), seed_(seed), device_(device), unit_(context.first_unit) {
  if (shape_.num_query_groups == 0) shape_.num_query_groups = shape_.num_attention_heads;
  if (shape_.ffn_hidden_size == 0) shape_.ffn_hidden_size = 4 * shape_.hidden_size;
  const std::vector<int64_t> vocab_shape{shape_.vocab_size, shape_.hidden_size};
  const parallel::Shard vocab_rows{0, {shape_.vocab_size}};
  const int cp_rank = context_.cp ? context_.cp->rank() : 0, cp_size = context_.cp ? context_.cp->size() : 1;
  const at::Tensor positions = parallel::local_positions(shape_.seq_length, cp_rank, cp_size, shape_.attention);
  positions_ = positions;
  if (splits_sequence()) {
    const int64_t part = positions.size(0) / context_.tp.size();
    positions_ = positions.narrow(0, part * context_.tp.rank(), part);
  }
  if (plan_.first) {
    embedding_unit_ = unit_;
    word_embedding_ = add_parameter("embedding.weight", vocab_shape, vocab_rows, kInitialDeviation);
    if (shape_.position_embedding == config::PositionEmbedding::learned) {
      position_embedding_ =
          add_parameter("position_embedding.weight", {shape_.seq_length, shape_.hidden_size}, {}, kInitialDeviation);
      parameters_.back().sequence_partial = splits_sequence();
    }
    ++unit_;
  }
  for (int64_t i = 0; i < plan_.layers; ++i) add_layer(plan_.first_layer + i);
  if (plan_.last) {
    head_unit_ = unit_;
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
    if (!plan_.first) embedding_unit_ = head_unit_;
    head_ = parallel::ColumnParallelLinear("head", head, context_.tp);
    ++unit_;
  }
  end_unit_ = unit_;
  if (shape_.position_embedding == config::PositionEmbedding::rope) {
    const int64_t half = shape_.hidden_size / shape_.num_attention_heads / 2;
    const at::Tensor exponent = at::arange(half, at::kDouble) / static_cast<double>(half);
    const at::Tensor angle = at::outer(at::arange(shape_.seq_length, at::kDouble), at::pow(kRopeBase, exponent.neg()));
    rope_cos_ = angle.cos().to(at::kFloat).index_select(0, positions).to(device_);
    rope_sin_ = angle.sin().to(at::kFloat).index_select(0, positions).to(device_);
  }
  positions_ = positions_.to(device_);
}

void GptStage::set_gathering(parallel::ParameterGathering* gathering) {
  gathering_ = gathering;
  if (plan_.first && plan_.last && shape_.tie_embeddings) gathering_->also_needs(head_unit_, embedding_unit_);
}

at::Tensor GptStage::add_parameter(const std::string& name, std::vector<int64_t> shape, parallel::Shard shard,
                                   double standard_deviation) {
  const uint64_t name_hash = static_cast<uint64_t>(comm::content_id(name));
  auto generator = at::make_generator<at::CPUGeneratorImpl>(mix({static_cast<uint64_t>(seed_), name_hash}));
  // On the meta device a parameter has a shape alone (dry runs).
  const at::Device home = device_.is_meta() ? device_ : at::Device(at::kCPU);
  const at::Tensor full = at::empty(shape, at::TensorOptions().dtype(at::kFloat).device(home));
  if (standard_deviation > 0 && !device_.is_meta()) full.normal_(0.0, standard_deviation, generator);
  parallel::Parameter parameter;
  parameter.name = name;
  parameter.value = parallel::take_shard(full, shard, context_.tp.rank(), context_.tp.size()).to(device_);
  parameter.full_shape = std::move(shape);
  parameter.shard = std::move(shard);
  parameter.unit = unit_;
  parameter.chunk = context_.chunk;
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
  parameters_.back().sequence_partial = splits_sequence();
  if (shape_.normalization == config::Normalization::layernorm) {
    norm.bias = add_parameter(name + ".bias", {shape_.hidden_size}, {}, 0.0);
    norm.bias.zero_();
    parameters_.back().decay = false;
    parameters_.back().sequence_partial = splits_sequence();
  }
  return norm;
}

void GptStage::add_layer(int64_t index) {
  const std::string name = "layers." + std::to_string(index);
  const int64_t hidden = shape_.hidden_size, head_dim = hidden / shape_.num_attention_heads;
  const int64_t group_rows = shape_.num_query_groups * head_dim;
  // Output projections start smaller, so that the residual stream's variance does not grow with depth (GPT-2).
  const double output_deviation = kInitialDeviation / std::sqrt(2.0 * static_cast<double>(shape_.num_layers));

  Layer layer;
  layer.index = index;
  layer.unit = unit_;
  layer.attention_norm = add_norm(name + ".attention_norm");
  const std::string qkv = name + ".attention.qkv.weight";
  layer.qkv = {
      qkv,
      add_parameter(qkv, {hidden + 2 * group_rows, hidden}, {0, {hidden, group_rows, group_rows}}, kInitialDeviation),
      context_.tp};
  layer.out = {add_parameter(name + ".attention.out.weight", {hidden, hidden}, {1, {hidden}}, output_deviation),
               context_.tp};
  layer.mlp_norm = add_norm(name + ".mlp_norm");
  add_mlp(layer, name, output_deviation);
  layers_.push_back(std::move(layer));
  ++unit_;
}

void GptStage::add_mlp(Layer& layer, const std::string& name, double output_deviation) {
  if (shape_.num_experts > 0) {
    const CreateParameter create = [this](const std::string& parameter, std::vector<int64_t> shape,
                                          parallel::Shard shard, double deviation, bool expert) {
      const at::Tensor leaf = add_parameter(parameter, std::move(shape), std::move(shard), deviation);
      parameters_.back().expert = expert;
      return leaf;
    };
    layer.experts = std::make_unique<MoeLayer>(shape_, layer.index, context_.experts,
                                               MoeGroups{&context_.tp, context_.ep, context_.cp}, kInitialDeviation,
                                               output_deviation, create);
    return;
  }
  const int64_t hidden = shape_.hidden_size, ffn = shape_.ffn_hidden_size;
  const bool gated = shape_.activation == config::Activation::swiglu;
  const std::string up = name + (gated ? ".mlp.gate_up.weight" : ".mlp.up.weight");
  const std::vector<int64_t> blocks = gated ? std::vector<int64_t>{ffn, ffn} : std::vector<int64_t>{ffn};
  layer.up = {up, add_parameter(up, {gated ? 2 * ffn : ffn, hidden}, {0, blocks}, kInitialDeviation), context_.tp};
  layer.down = {add_parameter(name + ".mlp.down.weight", {hidden, ffn}, {1, {ffn}}, output_deviation), context_.tp};
}

at::Tensor GptStage::normalize(const at::Tensor& input, const Norm& norm, at::ScalarType output) const {
  const at::Tensor weight = norm.weight.to(at::kFloat);
  if (shape_.normalization == config::Normalization::layernorm) {
    return at::layer_norm(input, {shape_.hidden_size}, weight, norm.bias.to(at::kFloat), kNormEpsilon).to(output);
  }
  return rms_norm(input, weight, kNormEpsilon, output);
}

at::ScalarType GptStage::product_type() const {
  const at::DeviceType type = device_.type();
  return at::autocast::is_autocast_enabled(type) ? at::autocast::get_autocast_dtype(type) : at::kFloat;
}

at::Tensor GptStage::attend(const at::Tensor& qkv) const {
  const int64_t batch = qkv.size(0), seq = qkv.size(1);
  const int64_t head_dim = shape_.hidden_size / shape_.num_attention_heads;
  const int64_t heads = shape_.num_attention_heads / context_.tp.size();
  const int64_t groups = shape_.num_query_groups / context_.tp.size();
  const QueryKeyValue split =
      split_heads(qkv.view({batch, seq, heads + 2 * groups, head_dim}), heads, groups, rope_cos_, rope_sin_);
  return attention(split.query, split.key, split.value, {shape_.attention, shape_.attention_window}, context_.cp);
}

at::Tensor GptStage::activate(const at::Tensor& up) const {
  if (shape_.activation == config::Activation::gelu) return at::gelu(up);
  return swiglu(up);
}

at::Tensor GptStage::drop(const at::Tensor& input, const MicrobatchId& id, int64_t layer, int64_t site) const {
  if (shape_.dropout <= 0) return input;
  const double keep = 1.0 - shape_.dropout;
  std::vector<at::Tensor> masks;
  for (int64_t row = 0; row < input.size(0); ++row) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(
        mix({static_cast<uint64_t>(seed_), static_cast<uint64_t>(id.step), static_cast<uint64_t>(id.first_sample + row),
             static_cast<uint64_t>(layer), static_cast<uint64_t>(site)}));
    masks.push_back(at::empty({shape_.seq_length, input.size(2)}, at::kFloat).bernoulli_(keep, generator));
  }
  at::Tensor mask = at::stack(masks).div_(keep).to(input.device());
  if (positions_.size(0) < shape_.seq_length) mask = mask.index_select(1, positions_);
  return input * mask;
}

at::Tensor GptStage::embed(const at::Tensor& tokens, const MicrobatchId& id) {
  if (gathering_) gathering_->use(embedding_unit_);
  at::Tensor x = parallel::vocab_parallel_embedding(word_embedding_, tokens, context_.tp).to(at::kFloat);
  if (position_embedding_.defined()) x = x + position_embedding_.to(at::kFloat).index_select(0, positions_);
  if (gathering_) gathering_->done(embedding_unit_);
  return drop(x, id, /*layer=*/0, /*site=*/0);
}

at::Tensor GptStage::layer_forward(Layer& layer, const at::Tensor& input, const MicrobatchId& id) {
  const at::Tensor qkv = layer.qkv.forward(normalize(input, layer.attention_norm, product_type()));
  // Selective recomputation (Korthikanti et al., arXiv 2205.05198, section 5): the attention core alone.
  const bool again = context_.checkpointing == config::CheckpointingMode::selective;
  const at::Tensor context =
      again ? parallel::recompute([this](const at::Tensor& packed) { return attend(packed); }, qkv) : attend(qkv);
  at::Tensor x = input + drop(layer.out.forward(context), id, layer.index, /*site=*/1);
  // A router decides in fp32.
  const at::Tensor mixed = mlp(layer, normalize(x, layer.mlp_norm, layer.experts ? at::kFloat : product_type()), id);
  return x + drop(mixed, id, layer.index, /*site=*/2);
}

at::Tensor GptStage::mlp(Layer& layer, const at::Tensor& input, const MicrobatchId& id) {
  if (!layer.experts) return layer.down.forward(activate(layer.up.forward(input)));
  if (!splits_sequence()) return layer.experts->forward(input, id.aux_gradient_scale);
  // Every tp rank routes the whole sequence; the layer's input gradient is complete on each.
  const at::Tensor whole = parallel::gather_sequence_split(input, context_.tp);
  return parallel::scatter_sequence(layer.experts->forward(whole, id.aux_gradient_scale), context_.tp);
}

at::Tensor GptStage::forward(const at::Tensor& input, const MicrobatchId& id) {
  at::Tensor x = plan_.first ? embed(input, id) : input;
  for (Layer& layer : layers_) {
    if (gathering_) x = gathering_->enter(x, layer.unit);
    x = context_.checkpointing == config::CheckpointingMode::full
            ? parallel::recompute([this, &layer, id](const at::Tensor& in) { return layer_forward(layer, in, id); }, x)
            : layer_forward(layer, x, id);
    if (gathering_) x = gathering_->exit(x, layer.unit);
  }
  return x;
}

at::Tensor GptStage::loss(const at::Tensor& hidden, const at::Tensor& labels) {
  const at::Tensor x = gathering_ ? gathering_->enter(hidden, head_unit_) : hidden;
  const at::Tensor logits = head_.forward(normalize(x, final_norm_, product_type()));
  const at::Tensor sum =
      parallel::vocab_parallel_cross_entropy(logits.flatten(0, 1), labels.flatten(), shape_.vocab_size, context_.tp)
          .sum();
  return gathering_ ? gathering_->exit(sum, head_unit_, /*stays=*/true) : sum;
}

void GptStage::mark_routing(int64_t step) {
  for (Layer& layer : layers_) {
    if (layer.experts) layer.experts->mark_and_reset(step);
  }
}

}  // namespace taut::model
