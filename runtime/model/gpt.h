// The decoder-only GPT, as the part of it that one pipeline stage holds and tensor parallelism shards.
//
//   tokens -> word embedding (+ learned positions) -> layers -> final norm -> head -> cross-entropy
//   layer:  x += out(attention(norm(x)));  x += down(activation(up(norm(x))))
//
// Linear layers have no bias; LayerNorm has weight and bias, RMSNorm a weight. Attention is causal, with grouped
// queries when num_query_groups < num_attention_heads. RoPE rotates halves (dimension i with i + head_dim/2, base
// 10000). GELU is the exact (erf) one. Dropout acts on the embedding and on both residual branches, not on attention
// weights.
//
// The model is the same on every layout: parameters have global names, each full tensor is drawn from a generator of
// its own seeded by (seed, name) and then sliced, and a dropout mask depends on (seed, step, sample, layer, site,
// position) alone. The residual stream, which also travels between stages, is fp32; under autocast the matrix products
// are bf16 or fp16.
//
// Of a sequence a rank holds what context parallelism gives it (context_parallel.h), seq_cp tokens; with sequence
// parallelism the residual stream is divided once more, into tp contiguous parts: [batch, seq_local, hidden].
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/config/config.h"
#include "runtime/model/moe.h"
#include "runtime/parallel/parameter.h"
#include "runtime/parallel/parameter_gathering.h"
#include "runtime/parallel/tensor_parallel.h"

namespace taut::model {

/// Which layers a stage holds, or one chunk of them. The first (virtual) stage embeds, the last one has the head and
/// computes the loss.
struct StagePlan {
  int64_t first_layer = 0, layers = 0;
  bool first = true, last = true;
};
/// Of virtual stage chunk · pipeline_parallel_size + pp.
StagePlan plan_stage(const config::Config& config, int pp, int chunk = 0);

/// What a stage needs to know of the mesh and the run. The groups outlive it.
struct StageContext {
  parallel::TensorParallel& tp;
  comm::Group* cp = nullptr;  // null = the whole sequence
  comm::Group* ep = nullptr;  // null = all experts
  ExpertPlacement experts = {};
  config::CheckpointingMode checkpointing = config::CheckpointingMode::none;
  int chunk = 0, first_unit = 0;  // virtual stage on this rank, and the number of its first unit
};

/// Which samples a microbatch holds: rows are samples first_sample, first_sample + 1, … of the step's global batch.
struct MicrobatchId {
  int64_t step = 0, first_sample = 0;
  double aux_gradient_scale = 1.0;  // of the experts' auxiliary losses (moe.h)
};

class GptStage {
 public:
  /// Draws this stage's parameters.
  GptStage(const config::Model& shape, const StagePlan& plan, const StageContext& context, int64_t seed,
           at::Device device);

  /// The stage's parameters in order of use.
  const std::vector<parallel::Parameter>& parameters() const { return parameters_; }
  /// One past the last unit (Parameter::unit) of this stage.
  int end_unit() const { return end_unit_; }
  /// Who brings the weights; without, they are always whole. Outlives the stage.
  void set_gathering(parallel::ParameterGathering* gathering);

  /// Tokens of a sequence, and positions of the residual stream, on this rank.
  int64_t tokens_per_sequence() const { return positions_.size(0) * (splits_sequence() ? context_.tp.size() : 1); }
  int64_t hidden_length() const { return positions_.size(0); }

  /// `input` is tokens [batch, seq_cp] int64 on the first stage, else the hidden state [batch, seq_local, hidden];
  /// returns the hidden state after this stage's layers.
  at::Tensor forward(const at::Tensor& input, const MicrobatchId& id);

  /// Last stage: sum of the losses of this rank's tokens. `labels` [batch, seq_cp] int64; negative ones are masked.
  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& labels);

  /// Marks in the trace how the step's tokens were routed to the experts, if there are any.
  void mark_routing(int64_t step);

 private:
  struct Norm {
    at::Tensor weight, bias;
  };
  struct Layer {
    int64_t index = 0;
    int unit = 0;
    Norm attention_norm, mlp_norm;
    parallel::ColumnParallelLinear qkv, up;
    parallel::RowParallelLinear out, down;
    std::unique_ptr<MoeLayer> experts;  // in place of up and down
  };
  bool splits_sequence() const { return context_.tp.sequence_parallel && context_.tp.size() > 1; }
  at::Tensor add_parameter(const std::string& name, std::vector<int64_t> shape, parallel::Shard shard,
                           double standard_deviation);
  Norm add_norm(const std::string& name);
  void add_layer(int64_t index);
  void add_mlp(Layer& layer, const std::string& name, double output_deviation);
  at::Tensor embed(const at::Tensor& tokens, const MicrobatchId& id);
  at::Tensor layer_forward(Layer& layer, const at::Tensor& input, const MicrobatchId& id);
  at::Tensor mlp(Layer& layer, const at::Tensor& input, const MicrobatchId& id);
  at::Tensor attend(const at::Tensor& qkv) const;
  /// RMSNorm's result is of type `output`, LayerNorm's fp32.
  at::Tensor normalize(const at::Tensor& input, const Norm& norm, at::ScalarType output) const;
  at::Tensor activate(const at::Tensor& up) const;
  at::Tensor drop(const at::Tensor& input, const MicrobatchId& id, int64_t layer, int64_t site) const;

  config::Model shape_;
  StagePlan plan_;
  StageContext context_;
  int64_t seed_;
  at::Device device_;
  int unit_ = 0, end_unit_ = 0;
  std::vector<parallel::Parameter> parameters_;
  parallel::ParameterGathering* gathering_ = nullptr;
  at::Tensor positions_;  // [seq_local] of the residual stream
  at::Tensor word_embedding_, position_embedding_;
  int embedding_unit_ = 0, head_unit_ = 0;
  std::vector<Layer> layers_;
  Norm final_norm_;
  parallel::ColumnParallelLinear head_;
  at::Tensor rope_cos_, rope_sin_;  // [seq_cp, head_dim / 2]
};

}  // namespace taut::model
