// Bytes that a rank's tensors take at the peak of a step, by part, for any layout; LibTorch-free. It describes this
// runtime (runtime/model, runtime/parallel, runtime/optim), not transformers at large: published formulas such as
// Korthikanti et al.'s sbh(34 + 5as/h) count a 16-bit residual stream and an attention that keeps its s × s matrix.
//
// What the runtime keeps, with n = micro batch × sequence / context parallel size tokens, e = bytes of the compute type
// (2 in bf16 and fp16, else 4), t = tensor parallel size, h hidden, f ffn, a and g query and key/value heads of size d:
//   weights      fp32 leaves, 4 bytes a parameter; in bf16 and fp16 autocast's copy of each matrix beside them, 2 bytes
//   gradients    fp32, 4 bytes; AdamW's moments fp32, 8 bytes
//   a layer      per token: two norms, each with its fp32 input (4h) and statistics; the products' inputs e·h (query,
//                key, value and up projection), e·ad/t (output), e·f/t (down); attention keeps what flash attention
//                needs (Dao et al., arXiv 2205.14135): query, key, value, output and 4a/t of log-sum-exp; SwiGLU keeps
//                its input 2f/t, GELU its input
//   the head     the final norm, e·h, and the logits e·vocab/t, which their gradient overwrites
// ZeRO (Rajbhandari et al., arXiv 1910.02054): stage 1 divides the moments by N, stage 2 the gradients, stage 3 the
// weights; N = dp · cp for dense parameters, dp · cp / ep for experts. Stages 2 and 3 add a bucket of gradients in
// full, stage 3 the gathered units: the one in use and two ahead. A test trains small models and holds this against the
// allocator's peak: within 10 %.
#pragma once

#include <cstdint>

#include "runtime/config/config.h"

namespace taut::config {

/// Bytes of one rank at the peak of a step.
struct MemoryEstimate {
  double weights = 0;        // fp32 leaves, or their shard
  double weight_copies = 0;  // casts to the compute type
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;    // kept from forward to backward, over the microbatches in flight
  double logits = 0;         // last stage: logits, then their gradient in the same place
  double communication = 0;  // gathered weights (ZeRO 3), buckets that are copies, pipeline and ring buffers
  double workspace = 0;      // backward's own temporaries in the layer that needs most
  double host = 0;           // offloaded masters, moments and gradients; on a machine without GPU it is the same memory
  /// Of the device that computes.
  double total() const {
    return weights + weight_copies + gradients + optimizer + activations + logits + communication + workspace;
  }
};
/// Of a rank of pipeline stage `pp` and expert-parallel rank `ep`. Expects a validated config. O(stages).
MemoryEstimate memory_on_stage(const Config& config, int64_t pp, int64_t ep = 0);

/// Layers, times the microbatches whose activations are kept whole at the schedule's peak, on stage `pp`
/// (passes_in_flight in pipeline_math.h). Zero bubble keeps as many as 1f1b; those of further microbatches whose weight
/// gradients wait keep the products' inputs and output gradients alone.
double layers_in_flight(const Config& config, int64_t pp);

}  // namespace taut::config
