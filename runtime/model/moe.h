// Mixture of experts: the layer that stands in place of a dense MLP when model.num_experts > 0.
//
//   router  probabilities = softmax(x · routerᵀ) in fp32; each token takes its moe_router_topk likeliest experts
//   experts y_e = down_e(activation(up_e(x))), one MLP of the dense MLP's shape each
//   output  Σ over the token's experts of weight · y_e; the weights are in moe_router.h
//
// The microbatch's tokens travel to the ranks that hold their experts and back (moe_dispatch.h); a rank multiplies all
// rows of its experts at once (grouped_linear.h). Sources: Shazeer et al. (arXiv 1701.06538), GShard (2006.16668),
// Switch (2101.03961), ST-MoE (2202.08906), Mixtral (2401.04088).
//
// Parameters, tensor parallelism dividing an expert as it divides the dense MLP:
//   layers.<l>.moe.router.weight                [experts, hidden]  whole on every rank, fp32
//   layers.<l>.moe.experts.<e>.gate_up.weight   [2 · ffn, hidden]  swiglu; gelu: up.weight [ffn, hidden]
//   layers.<l>.moe.experts.<e>.down.weight      [hidden, ffn]
// A layer therefore has experts · hidden + experts · m · hidden · ffn parameters in matrices (m = 3 swiglu, 2 gelu), of
// which one token's products use experts · hidden + topk · m · hidden · ffn: 6 FLOP each, forward and backward. One
// rank holds experts · hidden + (its experts) · m · hidden · ffn / tp.
//
// Gradients. Every rank's loss is scaled so that the sum over ranks is the gradient of the global mean. An expert has
// seen the tokens of its whole ep group, so that its gradient is summed over edp and divided by nothing; the router's
// is summed over dp × cp. Tensor-parallel ranks hold the same tokens and end up with the same, complete gradients of
// router and input.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/config/config.h"
#include "runtime/parallel/parameter.h"
#include "runtime/parallel/tensor_parallel.h"

namespace taut::model {

/// Experts of each expert-parallel rank, in the order in which the rank holds them.
using ExpertPlacement = std::vector<std::vector<int64_t>>;

/// parallel.expert_placement, or by default equal, contiguous shares. Throws taut::Error unless every expert has one
/// place, every rank an expert, and the default's shares are equal.
ExpertPlacement place_experts(const config::Model& shape, const config::Parallel& parallel);

/// Makes this rank's part of a parameter with a global name, drawn from the normal distribution, and registers it;
/// `expert` becomes parallel::Parameter::expert. Returns the leaf.
using CreateParameter = std::function<at::Tensor(const std::string& name, std::vector<int64_t> shape,
                                                 parallel::Shard shard, double standard_deviation, bool expert)>;

/// The groups that a layer talks to; each outlives it. A null group is one of size one.
struct MoeGroups {
  parallel::TensorParallel* tp = nullptr;
  comm::Group* ep = nullptr;  // ranks among which the experts are divided; member i holds placement[i]
  comm::Group* cp = nullptr;  // ranks among which a sequence is divided
};

class MoeLayer {
 public:
  /// `layer` is the model's layer index; `output_deviation` is of the matrices that write to the residual stream.
  /// Creates the router's and this rank's experts' parameters in order of use.
  MoeLayer(const config::Model& shape, int64_t layer, ExpertPlacement placement, MoeGroups groups, double deviation,
           double output_deviation, const CreateParameter& create);

  /// [batch, seq_local, hidden] -> the same, without the residual connection: a token that finds no room at any of its
  /// experts gets zero. `x` is all tokens of this cp rank and the same on every tp rank (under sequence parallelism:
  /// gathered before, sliced after; x's gradient is complete on every tp rank, so the gather's backward is a slice, not
  /// a reduce-scatter). A collective over tp, ep and cp: every member calls it in the same order, also in backward.
  ///
  /// `aux_gradient_scale` is the gradient that reaches this microbatch's auxiliary losses: what its share of the main
  /// loss's mean is scaled by, that is 1 / (microbatches of the step over all dp ranks), times the fp16 loss scale.
  at::Tensor forward(const at::Tensor& x, double aux_gradient_scale);

  /// Marks in the trace, for each expert, how many of this rank's tokens were routed to it since the last call and how
  /// many of them it had no room for, and starts anew. Only tp rank 0 marks: the others hold the same tokens. Forward
  /// passes without gradient are not counted (the first pass of a recomputed layer).
  void mark_and_reset(int64_t step);

  const std::vector<int64_t>& tokens() const { return tokens_; }    // routed to each expert, dropped ones included
  const std::vector<int64_t>& dropped() const { return dropped_; }  // beyond each expert's capacity

 private:
  at::Tensor experts(const at::Tensor& rows, const std::vector<int64_t>& rows_per_expert);

  config::Model shape_;
  int64_t layer_ = 0;
  ExpertPlacement placement_;
  MoeGroups groups_;
  at::Tensor router_;
  std::vector<at::Tensor> up_, down_;  // of this rank's experts
  std::vector<int64_t> tokens_, dropped_;
};

}  // namespace taut::model
