// Which experts a token goes to, with what weight, and the losses that keep the choice balanced.
//
//   p = softmax(logits) over all experts, fp32
//   chosen = the topk largest of p
//   weight = p[chosen], divided by the sum of the chosen when topk > 1 (Mixtral, Megatron); with topk = 1 the weight is
//            p itself, without which the router would get no gradient (Switch)
//
// Capacity. With a factor c an expert takes at most ceil(c · topk · tokens / experts) of a microbatch's tokens: the
// first ones in the order of the batch, sample by sample, position by position. "Tokens" are those of the whole
// microbatch, also when context parallelism spreads it: ranks exchange their counts per chunk of the sequence, so that
// the same tokens find room on every layout. Each data-parallel rank's microbatch counts by itself. A dropped token's
// weight is not given to its other experts.
//
// Auxiliary losses, over the microbatch's T tokens (padding and masked ones included, as the router sees them all):
//   load balance  coeff · experts · Σ_e f_e · P_e,  f_e = share of the topk · T choices that fell on e (before drops; a
//                 constant for the gradient), P_e = mean of p_e. 1 · coeff when even. (Switch eq. 4, topk as Megatron)
//   z-loss        coeff · mean(logsumexp(logits)²)  (ST-MoE eq. 5)
// Under context parallelism f and T are the whole microbatch's and each rank adds its own tokens' terms: the sum over
// cp is the one-rank value, in loss and gradient.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/comm/process_group.h"

namespace taut::model {

struct RouterSettings {
  int64_t experts = 0, topk = 1;
  std::optional<double> capacity_factor;  // none = dropless
  double aux_loss_coeff = 0, z_loss_coeff = 0;
  bool zig_zag = true;  // how cp divides a sequence, see context_parallel.h; false = one contiguous chunk a rank
};

/// tokens = batch · seq_local, in memory order of the input.
struct Routing {
  at::Tensor chosen;    // [tokens, topk] int64: experts
  at::Tensor weights;   // [tokens, topk] fp32, differentiable; zero where dropped
  at::Tensor kept;      // [tokens, topk] bool: found room; undefined when dropless
  at::Tensor position;  // [tokens, topk] int64: which of this rank's rows of its expert; meaningless where dropped
  at::Tensor aux_loss;  // scalar fp32, differentiable: this rank's share of both losses; undefined without either
  std::vector<int64_t> tokens_per_expert, dropped_per_expert;  // this rank's choices (drops included), its drops
};

/// Room of one expert: ceil(factor · topk · tokens / experts), at least 1.
int64_t expert_capacity(double factor, int64_t topk, int64_t tokens, int64_t experts);

/// `logits` fp32 [batch, seq_local, experts]; `cp` (null = one rank) holds the other parts of the sequences.
Routing route(const at::Tensor& logits, const RouterSettings& settings, comm::Group* cp);

/// Returns `output` unchanged; in backward `loss` receives `gradient`.
at::Tensor attach_loss(const at::Tensor& output, const at::Tensor& loss, double gradient);

}  // namespace taut::model
