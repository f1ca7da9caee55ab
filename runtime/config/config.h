// The training config: what a user may write in the JSON file, as plain structs with the JSON's own names.
//
// `config.h` holds the data; `load.h` reads, checks and prints it. No LibTorch here: the analyzer, the window and the
// command line read and patch configs with the same code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace taut::config {

enum class Normalization { rmsnorm, layernorm };
enum class Activation { swiglu, gelu };
enum class PositionEmbedding { rope, learned };
enum class Attention { dense, sliding_window, block_sparse };
enum class OptimizerType { AdamW, Lion, OneBitAdam, SGD };
enum class SchedulerType { WarmupCosineLR, WarmupLR, constant };
enum class PipelineSchedule { one_f_one_b, gpipe, interleaved_1f1b, zero_bubble };
enum class GradientCompression { none, fp16, bf16, int8, topk };
enum class CheckpointingMode { none, selective, full };
enum class OffloadDevice { none, cpu };

/// Shape of the decoder-only GPT. Sizes count elements; `ffn_hidden_size` 0 means 4 × hidden_size, `num_query_groups` 0
/// means num_attention_heads (plain multi-head attention).
struct Model {
  int64_t hidden_size = 256, num_layers = 6, num_attention_heads = 8, num_query_groups = 0, ffn_hidden_size = 0;
  int64_t seq_length = 256, vocab_size = 1024;
  Normalization normalization = Normalization::rmsnorm;
  Activation activation = Activation::swiglu;
  PositionEmbedding position_embedding = PositionEmbedding::rope;
  bool tie_embeddings = true;
  double dropout = 0.0;
  Attention attention = Attention::dense;
  int64_t attention_window = 128;
  int64_t num_experts = 0, moe_router_topk = 2;
  double moe_aux_loss_coeff = 0.01, moe_z_loss_coeff = 0.0;
  std::optional<double> moe_capacity_factor;
};

/// Where samples come from and who prepares them. `read_latency_ms` is an emulation of remote storage: that much
/// waiting is added to each sample read.
struct Data {
  std::string path;                // a text file, a folder of them, .gz allowed, or token files (NAME of NAME.bin and
                                   // NAME.idx); in the file relative to its folder, absolute once loaded, as are
                                   // tokenizer's FILE and checkpoint.dir
  std::string tokenizer = "byte";  // "byte" or "sentencepiece:FILE"
  int64_t num_workers = 4;         // loader processes per rank; 0 = inline
  int64_t prefetch_factor = 2;     // batches each worker may prepare ahead
  bool shared_memory = true;       // hand batches over in shared memory, else through a pipe
  bool preload = false, shuffle = true;
  int64_t seed = 1234;
  bool mock = false;
  bool eod_mask_loss = false;  // labels that are the end-of-document token do not count
  double read_latency_ms = 0.0;
};

struct OptimizerParams {
  double lr = 3e-4;
  std::pair<double, double> betas{0.9, 0.95};
  double eps = 1e-8, weight_decay = 0.1;
  double momentum = 0.0;         // SGD
  int64_t freeze_step = 100000;  // OneBitAdam
};
struct Optimizer {
  OptimizerType type = OptimizerType::AdamW;
  OptimizerParams params;
};

/// WarmupCosineLR: linear from warmup_min_ratio × lr over `warmup_num_steps`, then cosine to cos_min_ratio × lr at
/// `total_num_steps` (0 = train_steps). DeepSpeed's names.
struct SchedulerParams {
  int64_t total_num_steps = 0, warmup_num_steps = 0;
  double warmup_min_ratio = 0.0, cos_min_ratio = 0.0001;
};
struct Scheduler {
  SchedulerType type = SchedulerType::constant;
  SchedulerParams params;
};

struct Bf16 {
  bool enabled = false;
};
struct Fp16 {
  bool enabled = false;
  double loss_scale = 0;
  int64_t initial_scale_power = 16, loss_scale_window = 1000, hysteresis = 2;
  double min_loss_scale = 1;
};

struct OffloadOptimizer {
  OffloadDevice device = OffloadDevice::none;
  bool pin_memory = true;
};
/// Sizes are in elements, as in DeepSpeed.
struct ZeroOptimization {
  int64_t stage = 0;
  bool overlap_comm = true;
  int64_t reduce_bucket_size = 50'000'000, allgather_bucket_size = 50'000'000, stage3_prefetch_bucket_size = 50'000'000;
  int64_t stage3_max_live_parameters = 1'000'000'000, stage3_param_persistence_threshold = 100'000;
  bool reshard_after_forward = true;
  OffloadOptimizer offload_optimizer;
};

struct Parallel {
  int64_t tensor_parallel_size = 1, pipeline_parallel_size = 1, context_parallel_size = 1, expert_parallel_size = 1;
  bool sequence_parallel = false;
  bool gather_output = false;  // every column-parallel layer gathers its output (the naive form)
  PipelineSchedule pipeline_schedule = PipelineSchedule::one_f_one_b;
  int64_t virtual_pipeline_stages = 1;
  std::optional<std::vector<int64_t>> pipeline_layers;  // layers per stage; null = as even as possible
  std::optional<std::vector<std::vector<int64_t>>> expert_placement;
};

/// Emulates a slower network: every transfer takes latency + bytes/bandwidth by waiting; 0 = off.
struct EmulatedLink {
  double gbit_per_s = 0, latency_us = 0;
};
/// Gradient reduction at ZeRO stage 0.
struct Communication {
  bool overlap_grad_reduce = true;
  std::optional<double> bucket_size_mb = 25.0;  // nullopt = "auto"
  GradientCompression gradient_compression = GradientCompression::none;
  double topk_ratio = 0.01;
  double timeout_s = 300;
  bool check = false;
  EmulatedLink emulated_link;
};

struct ActivationCheckpointing {
  CheckpointingMode mode = CheckpointingMode::none;
};

struct Checkpoint {
  std::string dir;
  int64_t interval_steps = 0;
  double interval_minutes = 0;
  bool async = true;
  int64_t keep = 2, snapshot_interval_steps = 0;
};

struct Elastic {
  int64_t min_ranks = 1, max_restarts = 3;
};

struct Trace {
  std::optional<std::pair<int64_t, int64_t>> steps;  // half-open [first, last); null = all
  bool torch_ops = true, memory = true;
  double sample_hz = 50;
};

/// Not keys of the file, but what reading it told: which keys it set, and remarks on keys it need not have set.
struct Provenance {
  std::vector<std::string> keys_set;  // "model.hidden_size", in file order
  std::vector<std::string> notes;     // accepted DeepSpeed keys that change nothing
};

struct Config {
  Model model;
  Data data;
  int64_t train_batch_size = 0, train_micro_batch_size_per_gpu = 0, gradient_accumulation_steps = 0;  // 0 = left out
  int64_t train_steps = 100, seed = 1, world_size = 0;  // world_size 0 = product of the model-parallel sizes
  Optimizer optimizer;
  Scheduler scheduler;
  double gradient_clipping = 1.0;
  Bf16 bf16;
  Fp16 fp16;
  ZeroOptimization zero_optimization;
  Parallel parallel;
  Communication communication;
  ActivationCheckpointing activation_checkpointing;
  Checkpoint checkpoint;
  Elastic elastic;
  Trace trace;
  Provenance provenance;

  /// Ranks that hold one copy of the model: tp × pp × cp.
  int64_t model_parallel_size() const {
    return parallel.tensor_parallel_size * parallel.pipeline_parallel_size * parallel.context_parallel_size;
  }
  int64_t data_parallel_size() const { return world_size / model_parallel_size(); }
};

}  // namespace taut::config
