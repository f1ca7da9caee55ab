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

/// Tensors of one kind that one rank holds, each of `elements`.
enum class TensorKind {
  matrix,      // takes part in products, split over tp: attention, MLP, head (also when it is tied)
  embedding,   // the token table of a stage that does not use it as head, split over tp
  replicated,  // norms, positions, routers: whole on every tp rank
  expert       // a matrix of an expert on this rank, split over tp
};
struct HeldTensors {
  TensorKind kind;
  int64_t count, elements;
  bool in_layer;  // of each layer; else the embedding's or the head's
};
/// What a rank of pipeline stage `pp` and expert-parallel rank `ep` holds before ZeRO divides it. With a tied head the
/// last of several stages holds its own copy of the embedding.
std::vector<HeldTensors> held_tensors(const Config& config, int64_t pp, int64_t ep = 0);

/// Their elements, by kind.
struct HeldParameters {
  int64_t matrices = 0, embedding = 0, replicated = 0, experts = 0;
  int64_t dense() const { return matrices + embedding + replicated; }
  int64_t total() const { return dense() + experts; }
};
HeldParameters held_parameters(const Config& config, int64_t pp, int64_t ep = 0);

/// held_parameters().total().
int64_t parameter_count_on_stage(const Config& config, int64_t pp, int64_t ep = 0);

/// Experts that expert-parallel rank `ep` holds in each layer: parallel.expert_placement, else in order.
int64_t experts_on_rank(const Config& config, int64_t ep);

/// The expert-parallel rank that holds most experts.
int64_t fullest_expert_rank(const Config& config);

/// Floating-point operations per trained token, forward and backward, without recomputation. Convention of Megatron and
/// torchtitan (causal attention counted at half of PaLM's): 6 × (parameters in matrix products, head included,
/// embedding lookup not; of experts the moe_router_topk that a token visits) + 12 × layers × hidden × (keys that a
/// query sees on average): seq / 2 for dense attention, the mask's exact count (attention_mask.h) otherwise.
double flops_per_token(const Model& model);

}  // namespace taut::config
