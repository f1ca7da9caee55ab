// Closed forms of a config: parameters, floating-point operations, memory. LibTorch-free, so that the command line, the
// analyzer and the trainer quote the same numbers.
//
// The model (runtime/model): linear layers have no bias; RMSNorm has a weight [hidden], LayerNorm a weight and a bias;
// two norms a layer and one at the end; SwiGLU has three matrices [hidden, ffn], GELU two; a tied head shares the token
// embedding [vocab, hidden]; learned positions add [seq, hidden], rope none.
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

/// Parameters that one rank of pipeline stage `pp` holds. Attention, MLP, embedding and head are split over tensor
/// parallel ranks, norms and positions are not; with a tied head the last of several stages holds its own copy of the
/// embedding.
int64_t parameter_count_on_stage(const Config& config, int64_t pp);

/// Floating-point operations per trained token, forward and backward, without recomputation. Convention of Megatron and
/// torchtitan (causal attention counted at half of PaLM's): 6 × (parameters in matrix products, head included,
/// embedding lookup not) + 12 × layers × hidden × (keys that a query sees on average): seq / 2 for dense attention, the
/// mask's exact count (attention_mask.h) for sliding_window and block_sparse.
double flops_per_token(const Model& model);

/// Bytes that one rank of stage `pp` keeps.
struct MemoryEstimate {
  double weights, gradients, optimizer;  // fp32 masters: 4, 4 and 8 (AdamW) bytes a parameter
  double activations;                    // at the schedule's peak of microbatches in flight
  double total() const { return weights + gradients + optimizer + activations; }
};
/// Activations follow Korthikanti et al. (arXiv 2205.05198) eq. 2, sbh(10 + 24/t + 5as/(ht)) bytes a layer at 16 bit,
/// doubled in fp32, times the microbatches in flight (gpipe: all, 1f1b: min(stages - stage, all)), plus the last
/// stage's logits. Expects a validated config.
MemoryEstimate memory_on_stage(const Config& config, int64_t pp);

}  // namespace taut::config
