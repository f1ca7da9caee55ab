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
// its own seeded by (seed, name) and then sliced, and a dropout mask depends on (seed, step, sample, layer, site)
// alone. The residual stream, which also travels between stages, is fp32; under autocast the matrix products are bf16.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "runtime/config/config.h"
#include "runtime/parallel/parameter.h"
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

/// Which samples a microbatch holds: rows are samples first_sample, first_sample + 1, … of the step's global batch.
struct MicrobatchId {
  int64_t step = 0, first_sample = 0;
};

class GptStage {
 public:
  /// Draws this stage's parameters. `tp` must outlive the stage.
  GptStage(const config::Model& shape, const StagePlan& plan, parallel::TensorParallel& tp, int64_t seed,
           at::Device device);

  /// The stage's parameters in order of use.
  const std::vector<parallel::Parameter>& parameters() const { return parameters_; }

  /// `input` is tokens [batch, seq] int64 on the first stage, else the hidden state [batch, seq, hidden]; returns the
  /// hidden state after this stage's layers.
  at::Tensor forward(const at::Tensor& input, const MicrobatchId& id);

  /// Last stage: mean loss over all tokens of the microbatch. `labels` [batch, seq] int64.
  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& labels);

 private:
  struct Norm {
    at::Tensor weight, bias;
  };
  struct Layer {
    Norm attention_norm, mlp_norm;
    parallel::ColumnParallelLinear qkv, up;
    parallel::RowParallelLinear out, down;
  };
  at::Tensor add_parameter(const std::string& name, std::vector<int64_t> shape, parallel::Shard shard,
                           double standard_deviation);
  Norm add_norm(const std::string& name);
  void add_layer(int64_t index);
  at::Tensor normalize(const at::Tensor& input, const Norm& norm) const;
  at::Tensor attention(const at::Tensor& qkv) const;
  at::Tensor activate(const at::Tensor& up) const;
  at::Tensor drop(const at::Tensor& input, const MicrobatchId& id, int64_t layer, int64_t site) const;

  config::Model shape_;
  StagePlan plan_;
  parallel::TensorParallel& tp_;
  int64_t seed_;
  at::Device device_;
  std::vector<parallel::Parameter> parameters_;
  at::Tensor word_embedding_, position_embedding_;
  std::vector<Layer> layers_;
  Norm final_norm_;
  parallel::ColumnParallelLinear head_;
  at::Tensor rope_cos_, rope_sin_;  // [seq, head_dim / 2]
};

}  // namespace taut::model
