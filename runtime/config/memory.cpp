#include "runtime/config/memory.h"

#include <algorithm>
#include <cmath>

#include "runtime/config/model_math.h"
#include "runtime/config/pipeline_math.h"
#include "runtime/config/pipeline_passes.h"

namespace taut::config {
namespace {

/// The sizes that every term is made of, as numbers of elements; see the header for the letters.
struct Sizes {
  double n, h, f, V, heads, groups, t;  // heads = a·d / t, groups = g·d / t: what one rank holds
  double head_count;                    // a / t
  double stream;                        // share of the residual stream that a rank holds: 1 / t with sequence parallel
  double e;                             // bytes of the compute type
};

Sizes sizes_of(const Config& c) {
  const Model& m = c.model;
  const Parallel& p = c.parallel;
  Sizes z{};
  z.t = static_cast<double>(p.tensor_parallel_size);
  z.n = static_cast<double>(c.train_micro_batch_size_per_gpu) * static_cast<double>(m.seq_length) /
        static_cast<double>(p.context_parallel_size);
  z.h = static_cast<double>(m.hidden_size);
  z.f = static_cast<double>(m.ffn_hidden_size > 0 ? m.ffn_hidden_size : 4 * m.hidden_size) / z.t;
  z.V = static_cast<double>(m.vocab_size) / z.t;
  const double head_dim = z.h / static_cast<double>(m.num_attention_heads);
  z.heads = z.h / z.t;
  z.groups = static_cast<double>(m.num_query_groups > 0 ? m.num_query_groups : m.num_attention_heads) * head_dim / z.t;
  z.head_count = static_cast<double>(m.num_attention_heads) / z.t;
  z.stream = p.sequence_parallel ? 1.0 / z.t : 1.0;
  z.e = c.bf16.enabled || c.fp16.enabled ? 2.0 : 4.0;
  return z;
}

/// What attention keeps beside its input and output projections' inputs, bytes.
double attention_bytes(const Config& c, const Sizes& z) {
  const bool rope = c.model.position_embedding == PositionEmbedding::rope;
  const bool repeated = z.groups < z.heads;            // grouped keys and values are expanded to one per query head
  double elements = z.heads;                           // query
  if (!rope || !repeated) elements += 2 * z.groups;    // key and value; without RoPE parts of the projection's output
  if (repeated) elements += 2 * z.heads;               // expanded keys and values
  elements += z.heads;                                 // output, also the output projection's input
  return z.n * (z.e * elements + 4.0 * z.head_count);  // log-sum-exp is fp32
}

/// What selective recomputation keeps of attention: the projection's output and attention's own output.
double selective_attention_bytes(const Sizes& z) {
  return z.n * z.e * (2 * z.heads + 2 * z.groups);
}

/// What it computes again: without RoPE query, key and value are parts of what it keeps.
double recomputed_attention_bytes(const Config& c, const Sizes& z) {
  const bool rope = c.model.position_embedding == PositionEmbedding::rope;
  return attention_bytes(c, z) - (rope ? z.n * z.e * z.heads : selective_attention_bytes(z));
}

double mlp_bytes(const Config& c, const Sizes& z) {
  // SwiGLU: gate and up in one tensor, and what it makes of them. GELU: input and output.
  return z.n * z.e * z.f * (c.model.activation == Activation::swiglu ? 3.0 : 2.0);
}

/// What a layer keeps from forward to backward, bytes.
double layer_bytes(const Config& c, const Sizes& z) {
  const double statistics = c.model.normalization == Normalization::layernorm ? 8.0 : 4.0;
  const double norms = 2.0 * z.n * z.stream * (4.0 * z.h + statistics + z.e * z.h);
  const double dropout = c.model.dropout > 0 ? 2.0 * z.n * z.stream * 4.0 * z.h : 0.0;  // two masks
  return norms + attention_bytes(c, z) + mlp_bytes(c, z) + dropout;
}

/// What a layer keeps from its backward to its weight gradients, where those wait: each product's input and the
/// gradient of its output.
double waiting_bytes(const Config& c, const Sizes& z) {
  const double gate_and_up = c.model.activation == Activation::swiglu ? 2.0 : 1.0;
  const double inputs = 2.0 * z.h * z.stream + z.heads + z.f;
  const double gradients = z.heads + 2.0 * z.groups + 2.0 * z.h * z.stream + gate_and_up * z.f;
  return z.n * z.e * (inputs + gradients);
}

/// Whether weight gradients wait for passes of their own. Then a microbatch's may come after the next one's, so that
/// whole gradients accumulate over the step at every ZeRO stage.
bool splits_backward(const Config& c) {
  return c.parallel.pipeline_parallel_size > 1 && splits_backward(c.parallel.pipeline_schedule);
}

/// What backward needs at most beside what forward kept, in one layer: the stream's gradient and the MLP's, and the
/// down projection's input where its weight gradient waits.
double layer_workspace(const Config& c, const Sizes& z) {
  const double gated = c.model.activation == Activation::swiglu ? 2.0 : 1.0;
  return z.n * (4.0 * z.h * z.stream + z.e * z.f * (gated + (splits_backward(c) ? 1.0 : 0.0)));
}

/// Messages that a stage receives ahead, in hidden states: two from each neighbour.
double receive_buffers(const Config& c, int64_t pp) {
  const int64_t stages = c.parallel.pipeline_parallel_size;
  if (c.parallel.virtual_pipeline_stages > 1) return stages == 2 ? 2 : 4;  // round the ring of stages
  return (pp > 0 ? 2 : 0) + (pp + 1 < stages ? 2 : 0);
}

}  // namespace

double layers_in_flight(const Config& c, int64_t pp) {
  const Parallel& p = c.parallel;
  const auto layers = static_cast<double>(layers_per_stage(c)[static_cast<size_t>(pp)]);
  const PipelineSchedule schedule =
      p.pipeline_schedule == PipelineSchedule::zero_bubble ? PipelineSchedule::one_f_one_b : p.pipeline_schedule;
  const int64_t passes = passes_in_flight(schedule, p.pipeline_parallel_size, pp, c.gradient_accumulation_steps,
                                          p.virtual_pipeline_stages);
  return layers / static_cast<double>(p.virtual_pipeline_stages) * static_cast<double>(passes);
}

namespace {

/// How many ranks share what ZeRO divides.
struct Sharing {
  double dense, experts;
};
Sharing sharing(const Config& c) {
  const auto ranks = static_cast<double>(c.data_parallel_size() * c.parallel.context_parallel_size);
  return {ranks, ranks / static_cast<double>(c.parallel.expert_parallel_size)};
}

/// Weights under ZeRO 3, in elements: what is small enough to stay whole, and the units that are gathered.
struct Stage3 {
  double kept_whole = 0;
  double layer = 0;  // one layer's unit
  double ends = 0;   // the embedding's and the head's
  double all = 0;    // every unit together
};
Stage3 stage3_parts(const Config& c, int64_t pp, int64_t ep) {
  Stage3 parts;
  const auto layers = static_cast<double>(layers_per_stage(c)[static_cast<size_t>(pp)]);
  for (const HeldTensors& tensors : held_tensors(c, pp, ep)) {
    const double elements = static_cast<double>(tensors.count) * static_cast<double>(tensors.elements);
    if (tensors.elements <= c.zero_optimization.stage3_param_persistence_threshold) {
      parts.kept_whole += elements;
      continue;
    }
    parts.all += elements;
    (tensors.in_layer ? parts.layer : parts.ends) += tensors.in_layer ? elements / layers : elements;
  }
  return parts;
}

/// Elements gathered at a time: the unit in use, and the next two as far as stage3_prefetch_bucket_size allows.
double gathered_elements(const Config& c, const Stage3& parts, bool last) {
  const ZeroOptimization& zero = c.zero_optimization;
  if (!zero.reshard_after_forward) return parts.all;
  const double in_use = last ? std::max(parts.ends, parts.layer) : parts.layer;
  const double room = static_cast<double>(zero.stage3_prefetch_bucket_size);
  const double ahead = zero.overlap_comm ? std::min(2.0, std::floor(room / std::max(parts.layer, 1.0))) : 0.0;
  return std::min(in_use + ahead * parts.layer, parts.all);
}

void add_parameter_memory(MemoryEstimate& memory, const Config& c, const Sizes& z, int64_t pp, int64_t ep) {
  const HeldParameters held = held_parameters(c, pp, ep);
  const ZeroOptimization& zero = c.zero_optimization;
  const Sharing ranks = sharing(c);
  const auto dense = static_cast<double>(held.dense()), experts = static_cast<double>(held.experts);
  const double whole = dense + experts, shard = dense / ranks.dense + experts / ranks.experts;

  memory.weights = 4.0 * whole;
  const bool divided = zero.stage >= 2 && ranks.dense > 1;
  memory.gradients = 4.0 * ((divided ? shard : 0) + (!divided || splits_backward(c) ? whole : 0));
  memory.optimizer = 8.0 * (zero.stage >= 1 ? shard : whole);
  if (z.e == 2.0) memory.weight_copies = 2.0 * static_cast<double>(held.matrices + held.experts);
  if (zero.stage == 3 && ranks.dense > 1) {
    const Stage3 parts = stage3_parts(c, pp, ep);
    memory.weights = 4.0 * (shard - parts.kept_whole / ranks.dense + parts.kept_whole);
    memory.weight_copies = 0;
    const bool last = pp + 1 == c.parallel.pipeline_parallel_size;
    memory.communication += z.e * gathered_elements(c, parts, last);
  }
  if (zero.offload_optimizer.device == OffloadDevice::cpu) {
    const double states = zero.stage >= 1 ? shard : whole;
    memory.host = (8.0 + 4.0 + 4.0) * states;  // moments, masters, the gradients' copy
    memory.optimizer = 0;
  }
}

}  // namespace

MemoryEstimate memory_on_stage(const Config& c, int64_t pp, int64_t ep) {
  const Sizes z = sizes_of(c);
  const int64_t stages = c.parallel.pipeline_parallel_size;
  const bool first = pp == 0, last = pp == stages - 1;
  MemoryEstimate memory;
  add_parameter_memory(memory, c, z, pp, ep);

  const double layers = layers_in_flight(c, pp);
  const auto microbatch_layers = static_cast<double>(layers_per_stage(c)[static_cast<size_t>(pp)]);
  const double microbatches = layers / microbatch_layers;
  const double stream = 4.0 * z.n * z.h * z.stream;
  const double layer = layer_bytes(c, z);
  const bool full = c.activation_checkpointing.mode == CheckpointingMode::full;
  const bool selective = c.activation_checkpointing.mode == CheckpointingMode::selective;
  const double recomputed = full ? layer - stream : selective ? recomputed_attention_bytes(c, z) : 0;
  const double kept = full ? stream : selective ? layer - attention_bytes(c, z) + selective_attention_bytes(z) : layer;
  memory.activations = layers * kept;
  if (first && c.model.dropout > 0) memory.activations += microbatches * stream;
  if (stages > 1) memory.communication += receive_buffers(c, pp) * stream;

  // Microbatches whose head has run and whose backward is to come, and those whose weight gradients wait.
  const PipelineSchedule schedule = c.parallel.pipeline_schedule;
  const double heads = stages > 1 && schedule == PipelineSchedule::gpipe ? microbatches : 1;
  double waiting = 0;
  if (splits_backward(c)) waiting = static_cast<double>(std::min(stages, c.gradient_accumulation_steps)) - microbatches;
  memory.activations += waiting * microbatch_layers * waiting_bytes(c, z);
  const double logits = z.e * z.n * z.V, norm_output = z.e * z.n * z.h * z.stream;
  if (last) {
    memory.activations += heads * (stream + norm_output) + waiting * norm_output;
    memory.logits = (heads - 1 + waiting) * logits;
  }

  // The step's peak is where backward begins: in the head, or in the last layer once the head's tensors are gone.
  // In the head: the logits, over which cross-entropy writes their gradient.
  const double workspace = recomputed + layer_workspace(c, z);
  const double head = last ? logits : 0;
  if (head > workspace) {
    memory.logits += head;
  } else {
    memory.workspace = workspace;
  }

  // ZeRO 2 and 3 hold a bucket of gradients in full while backward fills it, most of all at its end, when one layer of
  // the microbatch is left.
  const Sharing ranks = sharing(c);
  if (c.zero_optimization.stage >= 2 && ranks.dense > 1 && !splits_backward(c)) {
    const HeldParameters held = held_parameters(c, pp, ep);
    const double bucket =
        4.0 * std::min(static_cast<double>(c.zero_optimization.reduce_bucket_size), static_cast<double>(held.total()));
    const double freed = (microbatch_layers - 1) * kept + (head > workspace ? head - workspace : 0);
    if (bucket > freed) {
      memory.communication += bucket;
      memory.activations -= (microbatch_layers - 1) * kept;
      if (head > workspace) memory.logits -= head;
      memory.workspace = workspace;
    }
  }
  return memory;
}

}  // namespace taut::config
