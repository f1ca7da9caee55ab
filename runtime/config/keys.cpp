#include "runtime/config/keys.h"

#include <cmath>
#include <sstream>

#include "runtime/config/names.h"
#include "runtime/config/nearest.h"

namespace taut::config {
namespace {

constexpr double kLargest = std::numeric_limits<double>::max();
constexpr Range at_least(double min) {
  return {min, kLargest, false};
}
constexpr Range above(double min) {
  return {min, kLargest, true};
}
constexpr Range between(double min, double max) {
  return {min, max, false};
}
// At least 0 and less than 1.
constexpr Range share() {
  return {0, 1 - std::numeric_limits<double>::epsilon(), false};
}
constexpr Range any() {
  return {};
}

// An enum member from a lambda that points at it.
template <class Get>
EnumMember choice(Get) {
  using Enum = std::remove_pointer_t<decltype(Get{}(std::declval<Config&>()))>;
  return {names_of(Enum{}), [](Config& c) { return static_cast<int>(*Get{}(c)); },
          [](Config& c, int value) { *Get{}(c) = static_cast<Enum>(value); }};
}

constexpr Origin kDeepSpeed = Origin::deepspeed, kMegatron = Origin::megatron, kExtension = Origin::extension;

std::vector<Key> model_keys() {
  return {
      {"model.hidden_size", [](Config& c) { return &c.model.hidden_size; }, between(1, 1e6), kMegatron,
       "Width of the residual stream; a multiple of num_attention_heads."},
      {"model.num_layers", [](Config& c) { return &c.model.num_layers; }, between(1, 1e5), kMegatron,
       "Transformer layers."},
      {"model.num_attention_heads", [](Config& c) { return &c.model.num_attention_heads; }, between(1, 1e5), kMegatron,
       "Query heads; a multiple of tensor_parallel_size."},
      {"model.num_query_groups", [](Config& c) { return &c.model.num_query_groups; }, between(0, 1e5), kMegatron,
       "Key/value heads (grouped-query attention); divides the query heads.", nullptr, "num_attention_heads"},
      {"model.ffn_hidden_size", [](Config& c) { return &c.model.ffn_hidden_size; }, between(0, 1e7), kMegatron,
       "Width inside the MLP.", nullptr, "4 × hidden_size"},
      {"model.seq_length", [](Config& c) { return &c.model.seq_length; }, between(1, 1e8), kMegatron,
       "Tokens of one sample."},
      {"model.vocab_size", [](Config& c) { return &c.model.vocab_size; }, between(2, 1e8), kMegatron,
       "Token ids; a multiple of tensor_parallel_size; at least 257 with the byte tokenizer."},
      {"model.normalization", choice([](Config& c) { return &c.model.normalization; }), any(), kMegatron,
       "RMSNorm (weight) or LayerNorm (weight and bias)."},
      {"model.activation", choice([](Config& c) { return &c.model.activation; }), any(), kExtension,
       "SwiGLU (three matrices) or GELU (two)."},
      {"model.position_embedding", choice([](Config& c) { return &c.model.position_embedding; }), any(), kExtension,
       "Rotary or learned absolute positions."},
      {"model.tie_embeddings", [](Config& c) { return &c.model.tie_embeddings; }, any(), kExtension,
       "The output head shares the token embedding."},
      {"model.dropout", [](Config& c) { return &c.model.dropout; }, share(), kExtension,
       "Dropout probability; 0 = none."},
      {"model.attention", choice([](Config& c) { return &c.model.attention; }), any(), kExtension,
       "Which tokens a token may look at, of those before it."},
      {"model.attention_window", [](Config& c) { return &c.model.attention_window; }, between(1, 1e8), kExtension,
       "sliding_window: tokens that a token sees, itself included; block_sparse: tokens a block (docs/attention.md)."},
      {"model.num_experts", [](Config& c) { return &c.model.num_experts; }, between(0, 1e5), kMegatron,
       "Experts of a mixture-of-experts MLP; 0 = dense."},
      {"model.moe_router_topk", [](Config& c) { return &c.model.moe_router_topk; }, at_least(1), kMegatron,
       "Experts per token."},
      {"model.moe_aux_loss_coeff", [](Config& c) { return &c.model.moe_aux_loss_coeff; }, at_least(0), kMegatron,
       "Weight of the load-balancing loss."},
      {"model.moe_z_loss_coeff", [](Config& c) { return &c.model.moe_z_loss_coeff; }, at_least(0), kMegatron,
       "Weight of the router's z-loss."},
      {"model.moe_capacity_factor", [](Config& c) { return &c.model.moe_capacity_factor; }, above(0), kMegatron,
       "Room per expert, relative to an even split; null drops no token."},
  };
}

std::vector<Key> data_keys() {
  return {
      {"data.path", [](Config& c) { return &c.data.path; }, any(), kExtension,
       "A text file or a folder of them, .gz allowed; or token files in Megatron's format, as NAME of NAME.bin and "
       "NAME.idx (`taut train --prepare` writes them); relative to the config's folder.",
       nullptr, "none; needed unless mock"},
      {"data.tokenizer", [](Config& c) { return &c.data.tokenizer; }, any(), kExtension,
       "`byte`, or `sentencepiece:FILE`; a FILE that does not exist is trained from the data before the ranks start."},
      {"data.num_workers", [](Config& c) { return &c.data.num_workers; }, between(0, 256), kExtension,
       "Loader processes per rank; 0 = the trainer loads by itself."},
      {"data.prefetch_factor", [](Config& c) { return &c.data.prefetch_factor; }, between(1, 1024), kExtension,
       "Batches that each worker may prepare ahead."},
      {"data.shared_memory", [](Config& c) { return &c.data.shared_memory; }, any(), kExtension,
       "Hand batches over in shared memory; false = through a pipe."},
      {"data.preload", [](Config& c) { return &c.data.preload; }, any(), kExtension,
       "Read all data into memory before the first step, once per machine."},
      {"data.shuffle", [](Config& c) { return &c.data.shuffle; }, any(), kExtension,
       "Permute the samples anew in each epoch."},
      {"data.seed", [](Config& c) { return &c.data.seed; }, at_least(0), kExtension,
       "Seed of the permutation. The order does not depend on workers or layout."},
      {"data.mock", [](Config& c) { return &c.data.mock; }, any(), kExtension,
       "Train on generated tokens: what is left is what training costs without a loader."},
      {"data.eod_mask_loss", [](Config& c) { return &c.data.eod_mask_loss; }, any(), kMegatron,
       "Leave labels that are the end-of-document token out of the loss."},
      {"data.read_latency_ms", [](Config& c) { return &c.data.read_latency_ms; }, between(0, 60'000), kExtension,
       "Emulation of remote storage: this much waiting is added to each sample read; 0 = off."},
  };
}

std::vector<Key> training_keys() {
  return {
      {"train_batch_size", [](Config& c) { return &c.train_batch_size; }, between(1, 1e9), kDeepSpeed,
       "Samples per optimizer step over all ranks.", nullptr, "micro batch × accumulation × data-parallel size"},
      {"train_micro_batch_size_per_gpu", [](Config& c) { return &c.train_micro_batch_size_per_gpu; }, between(1, 1e6),
       kDeepSpeed, "Samples per forward pass of one rank.", nullptr, "from the other two"},
      {"gradient_accumulation_steps", [](Config& c) { return &c.gradient_accumulation_steps; }, between(1, 1e6),
       kDeepSpeed, "Microbatches per optimizer step (with pipelining: the microbatches in the pipeline).", nullptr,
       "from the other two, else 1"},
      {"train_steps", [](Config& c) { return &c.train_steps; }, at_least(1), kExtension,
       "Optimizer steps to train; --steps overrides it."},
      {"seed", [](Config& c) { return &c.seed; }, at_least(0), kExtension, "Seed of the weights and of dropout."},
      {"world_size", [](Config& c) { return &c.world_size; }, between(1, 1'000'000), kExtension,
       "Ranks; --nproc overrides it.", nullptr, "product of the model-parallel sizes"},
      {"gradient_clipping", [](Config& c) { return &c.gradient_clipping; }, at_least(0), kDeepSpeed,
       "Largest global gradient norm; 0 = no clipping."},
      {"optimizer.type", choice([](Config& c) { return &c.optimizer.type; }), any(), kDeepSpeed, "Optimizer."},
      {"optimizer.params.lr", [](Config& c) { return &c.optimizer.params.lr; }, at_least(0), kDeepSpeed,
       "Peak learning rate."},
      {"optimizer.params.betas", [](Config& c) { return &c.optimizer.params.betas; }, share(), kDeepSpeed,
       "Decay of the first and second moment."},
      {"optimizer.params.eps", [](Config& c) { return &c.optimizer.params.eps; }, above(0), kDeepSpeed,
       "Added to the denominator."},
      {"optimizer.params.weight_decay", [](Config& c) { return &c.optimizer.params.weight_decay; }, at_least(0),
       kDeepSpeed, "Decoupled weight decay."},
      {"optimizer.params.momentum", [](Config& c) { return &c.optimizer.params.momentum; }, share(), kDeepSpeed,
       "SGD's momentum."},
      {"optimizer.params.freeze_step", [](Config& c) { return &c.optimizer.params.freeze_step; }, at_least(1),
       kDeepSpeed, "OneBitAdam: steps before compression begins."},
      {"scheduler.type", choice([](Config& c) { return &c.scheduler.type; }), any(), kDeepSpeed,
       "Learning rate over the steps: linear warm-up then cosine, linear warm-up then constant, or constant."},
      {"scheduler.params.total_num_steps", [](Config& c) { return &c.scheduler.params.total_num_steps; }, at_least(0),
       kDeepSpeed, "Step at which the cosine ends.", nullptr, "train_steps"},
      {"scheduler.params.warmup_num_steps", [](Config& c) { return &c.scheduler.params.warmup_num_steps; }, at_least(0),
       kDeepSpeed, "Steps of linear warm-up."},
      {"scheduler.params.warmup_min_ratio", [](Config& c) { return &c.scheduler.params.warmup_min_ratio; },
       between(0, 1), kDeepSpeed, "Where warm-up starts, as a share of lr."},
      {"scheduler.params.cos_min_ratio", [](Config& c) { return &c.scheduler.params.cos_min_ratio; }, between(0, 1),
       kDeepSpeed, "Where the cosine ends, as a share of lr."},
      {"bf16.enabled", [](Config& c) { return &c.bf16.enabled; }, any(), kDeepSpeed,
       "Autocast to bfloat16; masters stay fp32."},
      {"fp16.enabled", [](Config& c) { return &c.fp16.enabled; }, any(), kDeepSpeed,
       "Train in float16 with loss scaling."},
      {"fp16.loss_scale", [](Config& c) { return &c.fp16.loss_scale; }, at_least(0), kDeepSpeed,
       "Fixed loss scale; 0 = dynamic."},
      {"fp16.initial_scale_power", [](Config& c) { return &c.fp16.initial_scale_power; }, between(0, 126), kDeepSpeed,
       "The dynamic scale starts at two to this power."},
      {"fp16.loss_scale_window", [](Config& c) { return &c.fp16.loss_scale_window; }, at_least(1), kDeepSpeed,
       "Good steps before the scale doubles."},
      {"fp16.hysteresis", [](Config& c) { return &c.fp16.hysteresis; }, at_least(1), kDeepSpeed,
       "Overflows before the scale halves."},
      {"fp16.min_loss_scale", [](Config& c) { return &c.fp16.min_loss_scale; }, above(0), kDeepSpeed,
       "Smallest dynamic scale."},
  };
}

std::vector<Key> zero_keys() {
  return {
      {"zero_optimization.stage", [](Config& c) { return &c.zero_optimization.stage; }, between(0, 3), kDeepSpeed,
       "What is sharded over data-parallel ranks: 1 optimizer states, 2 and gradients, 3 and weights."},
      {"zero_optimization.overlap_comm", [](Config& c) { return &c.zero_optimization.overlap_comm; }, any(), kDeepSpeed,
       "Reduce gradients while backward runs."},
      {"zero_optimization.reduce_bucket_size", [](Config& c) { return &c.zero_optimization.reduce_bucket_size; },
       at_least(1), kDeepSpeed, "Elements per gradient reduction."},
      {"zero_optimization.allgather_bucket_size", [](Config& c) { return &c.zero_optimization.allgather_bucket_size; },
       at_least(1), kDeepSpeed, "No effect: weights are gathered in the buckets of reduce_bucket_size."},
      {"zero_optimization.stage3_prefetch_bucket_size",
       [](Config& c) { return &c.zero_optimization.stage3_prefetch_bucket_size; }, at_least(0), kDeepSpeed,
       "Elements gathered ahead of use."},
      {"zero_optimization.stage3_max_live_parameters",
       [](Config& c) { return &c.zero_optimization.stage3_max_live_parameters; }, at_least(0), kDeepSpeed,
       "Gathered elements kept at a time."},
      {"zero_optimization.stage3_param_persistence_threshold",
       [](Config& c) { return &c.zero_optimization.stage3_param_persistence_threshold; }, at_least(0), kDeepSpeed,
       "Tensors of at most so many elements stay whole."},
      {"zero_optimization.reshard_after_forward", [](Config& c) { return &c.zero_optimization.reshard_after_forward; },
       any(), kExtension, "Free gathered weights between forward and backward."},
      {"zero_optimization.offload_optimizer.device",
       choice([](Config& c) { return &c.zero_optimization.offload_optimizer.device; }), any(), kDeepSpeed,
       "Where optimizer states live when not on the GPU."},
      {"zero_optimization.offload_optimizer.pin_memory",
       [](Config& c) { return &c.zero_optimization.offload_optimizer.pin_memory; }, any(), kDeepSpeed,
       "Keep offloaded states in page-locked memory."},
  };
}

std::vector<Key> parallel_keys() {
  return {
      {"parallel.tensor_parallel_size", [](Config& c) { return &c.parallel.tensor_parallel_size; }, between(1, 1e6),
       kMegatron, "Ranks that share each layer's matrices."},
      {"parallel.pipeline_parallel_size", [](Config& c) { return &c.parallel.pipeline_parallel_size; }, between(1, 1e6),
       kMegatron, "Stages the layers are cut into."},
      {"parallel.context_parallel_size", [](Config& c) { return &c.parallel.context_parallel_size; }, between(1, 1e6),
       kMegatron, "Ranks that share each sequence."},
      {"parallel.expert_parallel_size", [](Config& c) { return &c.parallel.expert_parallel_size; }, between(1, 1e6),
       kMegatron, "Ranks that share the experts."},
      {"parallel.sequence_parallel", [](Config& c) { return &c.parallel.sequence_parallel; }, any(), kMegatron,
       "Split norms and dropout over the tensor-parallel ranks too."},
      {"parallel.gather_output", [](Config& c) { return &c.parallel.gather_output; }, any(), kMegatron,
       "Every column-parallel layer gathers its output: the naive form of tensor parallelism, for comparison."},
      {"parallel.pipeline_schedule", choice([](Config& c) { return &c.parallel.pipeline_schedule; }), any(), kExtension,
       "Order of forward and backward passes on a stage."},
      {"parallel.virtual_pipeline_stages", [](Config& c) { return &c.parallel.virtual_pipeline_stages; }, at_least(1),
       kMegatron, "Model chunks per stage, for interleaved_1f1b."},
      {"parallel.pipeline_layers", [](Config& c) { return &c.parallel.pipeline_layers; }, at_least(1), kExtension,
       "Layers of each stage; null = as even as possible, the first stages take the remainder."},
      {"parallel.expert_placement", [](Config& c) { return &c.parallel.expert_placement; }, at_least(0), kExtension,
       "Experts of each expert-parallel rank; null = in order."},
      {"communication.overlap_grad_reduce", [](Config& c) { return &c.communication.overlap_grad_reduce; }, any(),
       kMegatron, "Reduce gradient buckets while backward runs (ZeRO stage 0)."},
      {"communication.bucket_size_mb", [](Config& c) { return &c.communication.bucket_size_mb; }, above(0), kExtension,
       "Megabytes (2^20 bytes) per gradient bucket, fractions allowed, or \"auto\".", "auto"},
      {"communication.gradient_compression", choice([](Config& c) { return &c.communication.gradient_compression; }),
       any(), kExtension, "Form in which gradients travel."},
      {"communication.topk_ratio", [](Config& c) { return &c.communication.topk_ratio; }, Range{0, 1, true}, kExtension,
       "Share of gradient elements that topk sends."},
      {"communication.timeout_s", [](Config& c) { return &c.communication.timeout_s; }, above(0), kExtension,
       "Seconds a collective may take before the run fails."},
      {"communication.check", [](Config& c) { return &c.communication.check; }, any(), kExtension,
       "Compare the ranks' arguments before each collective."},
      {"communication.emulated_link.gbit_per_s", [](Config& c) { return &c.communication.emulated_link.gbit_per_s; },
       at_least(0), kExtension, "Emulation of a slower network: bandwidth of each rank's link; 0 = off."},
      {"communication.emulated_link.latency_us", [](Config& c) { return &c.communication.emulated_link.latency_us; },
       between(0, 1e7), kExtension, "Emulation of a slower network: latency of each transfer; 0 = off."},
      {"activation_checkpointing.mode", choice([](Config& c) { return &c.activation_checkpointing.mode; }), any(),
       kExtension, "What is recomputed in backward instead of kept."},
  };
}

std::vector<Key> run_keys() {
  return {
      {"checkpoint.dir", [](Config& c) { return &c.checkpoint.dir; }, any(), kExtension,
       "Folder for checkpoints; relative to the config's folder.", nullptr, "none; no checkpoints"},
      {"checkpoint.interval_steps", [](Config& c) { return &c.checkpoint.interval_steps; }, at_least(0), kExtension,
       "Steps between checkpoints; 0 = not by steps."},
      {"checkpoint.interval_minutes", [](Config& c) { return &c.checkpoint.interval_minutes; }, at_least(0), kExtension,
       "Minutes between checkpoints; 0 = not by time."},
      {"checkpoint.async", [](Config& c) { return &c.checkpoint.async; }, any(), kExtension,
       "Write while training goes on."},
      {"checkpoint.keep", [](Config& c) { return &c.checkpoint.keep; }, at_least(1), kExtension,
       "Newest checkpoints that stay."},
      {"checkpoint.snapshot_interval_steps", [](Config& c) { return &c.checkpoint.snapshot_interval_steps; },
       at_least(0), kExtension, "Steps between snapshots in memory; 0 = none."},
      {"elastic.min_ranks", [](Config& c) { return &c.elastic.min_ranks; }, at_least(1), kExtension,
       "Fewest ranks to go on with."},
      {"elastic.max_restarts", [](Config& c) { return &c.elastic.max_restarts; }, between(0, 1000), kExtension,
       "Times a run whose rank died is started again from its newest checkpoint; needs checkpoint.dir."},
      {"trace.steps", [](Config& c) { return &c.trace.steps; }, at_least(0), kExtension,
       "Steps to trace, [first, last) counted from 0; null = all."},
      {"trace.torch_ops", [](Config& c) { return &c.trace.torch_ops; }, any(), kExtension,
       "Trace LibTorch's operators."},
      {"trace.memory", [](Config& c) { return &c.trace.memory; }, any(), kExtension, "Trace memory use."},
      {"trace.sample_hz", [](Config& c) { return &c.trace.sample_hz; }, between(0, 10'000), kExtension,
       "Samples per second of CPU, GPU and network counters; 0 = none."},
  };
}

// Where a key is known under another name: Megatron's and NeMo's flags, the Hugging Face trainer's, DeepSpeed's own.
struct OtherName {
  const char* name;
  const char* ours;
};
constexpr OtherName kOtherNames[] = {
    {"tensor_model_parallel_size", "parallel.tensor_parallel_size"},
    {"pipeline_model_parallel_size", "parallel.pipeline_parallel_size"},
    {"expert_model_parallel_size", "parallel.expert_parallel_size"},
    {"tp", "parallel.tensor_parallel_size"},
    {"pp", "parallel.pipeline_parallel_size"},
    {"cp", "parallel.context_parallel_size"},
    {"ep", "parallel.expert_parallel_size"},
    {"autotp_size", "parallel.tensor_parallel_size"},
    {"micro_batch_size", "train_micro_batch_size_per_gpu"},
    {"train_micro_batch_size", "train_micro_batch_size_per_gpu"},
    {"per_device_train_batch_size", "train_micro_batch_size_per_gpu"},
    {"global_batch_size", "train_batch_size"},
    {"batch_size", "train_batch_size"},
    {"train_iters", "train_steps"},
    {"max_steps", "train_steps"},
    {"steps", "train_steps"},
    {"learning_rate", "optimizer.params.lr"},
    {"clip_grad", "gradient_clipping"},
    {"max_grad_norm", "gradient_clipping"},
    {"n_layer", "model.num_layers"},
    {"n_layers", "model.num_layers"},
    {"num_hidden_layers", "model.num_layers"},
    {"n_head", "model.num_attention_heads"},
    {"num_heads", "model.num_attention_heads"},
    {"num_key_value_heads", "model.num_query_groups"},
    {"n_embd", "model.hidden_size"},
    {"d_model", "model.hidden_size"},
    {"intermediate_size", "model.ffn_hidden_size"},
    {"max_position_embeddings", "model.seq_length"},
    {"sequence_length", "model.seq_length"},
    {"block_size", "model.seq_length"},
    {"workers", "data.num_workers"},
    {"bucket_cap_mb", "communication.bucket_size_mb"},
    {"overlap_comm", "communication.overlap_grad_reduce"},
    {"save_interval", "checkpoint.interval_steps"},
    {"bfloat16", "bf16.enabled"},
};

std::string section_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

std::string leaf_of(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

// Keys and sections directly inside `section`.
std::vector<std::string> children(const std::string& section) {
  const std::string prefix = section.empty() ? "" : section + ".";
  std::vector<std::string> names;
  for (const Key& key : keys()) {
    const std::string path = key.path;
    if (!path.starts_with(prefix)) continue;
    const std::string child = path.substr(prefix.size(), path.find('.', prefix.size()) - prefix.size());
    if (names.empty() || names.back() != child) names.push_back(child);
  }
  return names;
}

std::string number_text(double value) {
  std::ostringstream out;
  if (std::abs(value) < 1e15 && value == std::floor(value)) {
    out << static_cast<int64_t>(value);
  } else {
    out << value;
  }
  return out.str();
}

}  // namespace

const std::vector<Key>& keys() {
  static const std::vector<Key> all = [] {
    std::vector<Key> table;
    for (const auto section : {model_keys, data_keys, training_keys, zero_keys, parallel_keys, run_keys}) {
      const std::vector<Key> part = section();
      table.insert(table.end(), part.begin(), part.end());
    }
    return table;
  }();
  return all;
}

const Key* find_key(const std::string& path) {
  for (const Key& key : keys()) {
    if (path == key.path) return &key;
  }
  return nullptr;
}

bool is_section(const std::string& path) {
  for (const Key& key : keys()) {
    if (std::string_view(key.path).starts_with(path + ".")) return true;
  }
  return false;
}

std::string suggest_key(const std::string& path) {
  const std::string section = section_of(path), leaf = leaf_of(path);
  const std::string prefix = section.empty() ? "" : section + ".";
  for (const OtherName& other : kOtherNames) {
    if (leaf == other.name) return std::string("here it is called ") + other.ours;
  }
  if (const auto near = nearest(leaf, children(section))) return "did you mean " + prefix + *near + "?";
  std::vector<std::string> leaves;
  for (const Key& key : keys()) leaves.push_back(leaf_of(key.path));
  if (const auto near = nearest(leaf, leaves)) {
    for (const Key& key : keys()) {
      if (leaf_of(key.path) == *near) return std::string("did you mean ") + key.path + "?";
    }
  }
  std::string list;
  for (const std::string& child : children(section)) list += (list.empty() ? "" : ", ") + child;
  return (section.empty() ? "keys at the top are " : section + " has the keys ") + list;
}

std::string describe_range(const Range& range) {
  const bool has_min = range.min != std::numeric_limits<double>::lowest(), has_max = range.max != kLargest;
  if (!has_min) return "";
  const std::string min = number_text(range.min);
  if (!has_max) return range.above_min ? "above " + min : min + " or more";
  return (range.above_min ? "above " : "") + min + (range.below_max ? " to below " : " to ") + number_text(range.max);
}

std::string describe_rule(const Key& key) {
  const std::string range = describe_range(key.range);
  const std::string tail = range.empty() ? "" : ", " + range;
  struct Describe {
    const Key& key;
    const std::string& tail;
    std::string operator()(int64_t* (*)(Config&)) const { return "an integer" + tail; }
    std::string operator()(double* (*)(Config&)) const { return "a number" + tail; }
    std::string operator()(bool* (*)(Config&)) const { return "true or false"; }
    std::string operator()(std::string* (*)(Config&)) const { return "a text"; }
    std::string operator()(const EnumMember& member) const {
      std::string list;
      for (size_t i = 0; i < member.names.size(); ++i) {
        list += i == 0 ? "" : i + 1 == member.names.size() ? " or " : ", ";
        list += "\"" + std::string(member.names[i]) + "\"";
      }
      return list;
    }
    std::string operator()(std::optional<double>* (*)(Config&)) const {
      return "a number" + tail + ", or " + (key.empty ? "\"" + std::string(key.empty) + "\"" : "null");
    }
    std::string operator()(std::pair<double, double>* (*)(Config&)) const { return "two numbers" + tail; }
    std::string operator()(std::optional<std::pair<int64_t, int64_t>>* (*)(Config&)) const {
      return "two integers [first, last)" + tail + ", or null";
    }
    std::string operator()(std::optional<std::vector<int64_t>>* (*)(Config&)) const {
      return "a list of integers" + tail + ", or null";
    }
    std::string operator()(std::optional<std::vector<std::vector<int64_t>>>* (*)(Config&)) const {
      return "a list of lists of integers" + tail + ", or null";
    }
  };
  return std::visit(Describe{key, tail}, key.member);
}

}  // namespace taut::config
