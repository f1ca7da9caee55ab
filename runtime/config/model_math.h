// Closed forms of a config: parameters and floating-point operations (memory: memory.h). LibTorch-free, so that the
// command line, the analyzer and the trainer quote the same numbers.
//
// The model (runtime/model): linear layers have no bias; RMSNorm has a weight [hidden], LayerNorm a weight and a bias;
// two norms a layer and one at the end; SwiGLU has three matrices [hidden, ffn], GELU two; a tied head shares the token
// embedding [vocab, hidden]; learned positions add [seq, hidden], rope none. With experts every layer has a router
// [experts, hidden] and that many MLPs in place of one.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/config/config.h"

namespace taut::config {

/// Layers of each pipeline stage: parallel.pipeline_layers, else as even as possible, where the first stages take the
/// remainder. Size = pipeline_parallel_size.
std::vector<int64_t> layers_per_stage(const Config& config);

/// Parameters of the whole model; a tied embedding counts once.
int64_t parameter_count(const Model& model);

/// Parameters that one rank holds before ZeRO divides them, by how they are stored.
struct HeldParameters {
  int64_t matrices = 0;    // that take part in products, split over tp: attention, MLP, head (also when it is tied)
  int64_t embedding = 0;   // the token table of a stage that does not use it as head, split over tp
  int64_t replicated = 0;  // norms, positions, routers: whole on every tp rank
  int64_t experts = 0;     // matrices of the experts on this rank, split over tp
  int64_t total() const { return matrices + embedding + replicated + experts; }
};
/// Of a rank of pipeline stage `pp` and expert-parallel rank `ep`. With a tied head the last of several stages holds
/// its own copy of the embedding.
HeldParameters held_parameters(const Config& config, int64_t pp, int64_t ep = 0);

/// held_parameters().total().
int64_t parameter_count_on_stage(const Config& config, int64_t pp, int64_t ep = 0);

/// Experts that expert-parallel rank `ep` holds in each layer: parallel.expert_placement, else in order.
int64_t experts_on_rank(const Config& config, int64_t ep);

/// Floating-point operations per trained token, forward and backward, without recomputation. Convention of Megatron and
/// torchtitan (causal attention counted at half of PaLM's): 6 × (parameters in matrix products, head included,
/// embedding lookup not; of experts the moe_router_topk that a token visits) + 6 × layers × hidden × seq.
double flops_per_token(const Model& model);

}  // namespace taut::config
