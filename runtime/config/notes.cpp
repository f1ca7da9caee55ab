// Remarks on keys that were set but do nothing in this config.
#include "runtime/config/keys.h"
#include "runtime/config/load.h"

namespace taut::config {
namespace {

// Keys (all that begin with `prefix`) that do nothing while `active` is false.
struct Condition {
  const char* prefix;
  bool (*active)(const Config&);
  const char* because;
};

bool gradients_are_reduced(const Config& c) {
  return c.data_parallel_size() * c.parallel.context_parallel_size > 1;
}

constexpr Condition kConditions[] = {
    {"model.attention_window", [](const Config& c) { return c.model.attention != Attention::dense; },
     "model.attention is dense"},
    {"model.attention_window", [](const Config& c) { return c.model.attention_window < c.model.seq_length; },
     "it is no shorter than model.seq_length"},
    {"model.moe_", [](const Config& c) { return c.model.num_experts > 0; }, "model.num_experts is 0"},
    {"data.path", [](const Config& c) { return !c.data.mock; }, "data.mock is true"},
    {"data.tokenizer", [](const Config& c) { return !c.data.mock; }, "data.mock is true"},
    {"data.read_latency_ms", [](const Config& c) { return !c.data.mock; }, "data.mock is true"},
    {"data.preload", [](const Config& c) { return !c.data.mock; }, "data.mock is true"},
    {"data.eod_mask_loss", [](const Config& c) { return !c.data.mock; }, "data.mock is true"},
    {"data.prefetch_factor", [](const Config& c) { return c.data.num_workers > 0; }, "no loader process runs"},
    {"data.shared_memory", [](const Config& c) { return c.data.num_workers > 0; }, "no loader process runs"},
    {"optimizer.params.momentum", [](const Config& c) { return c.optimizer.type == OptimizerType::SGD; },
     "optimizer.type is not SGD"},
    {"optimizer.params.freeze_step", [](const Config& c) { return c.optimizer.type == OptimizerType::OneBitAdam; },
     "optimizer.type is not OneBitAdam"},
    {"scheduler.params.", [](const Config& c) { return c.scheduler.type != SchedulerType::constant; },
     "scheduler.type is constant"},
    {"scheduler.params.cos_min_ratio", [](const Config& c) { return c.scheduler.type != SchedulerType::WarmupLR; },
     "scheduler.type is WarmupLR"},
    {"fp16.loss_scale", [](const Config& c) { return c.fp16.enabled; }, "fp16.enabled is false"},
    {"fp16.initial_scale_power", [](const Config& c) { return c.fp16.enabled; }, "fp16.enabled is false"},
    {"fp16.hysteresis", [](const Config& c) { return c.fp16.enabled; }, "fp16.enabled is false"},
    {"fp16.min_loss_scale", [](const Config& c) { return c.fp16.enabled; }, "fp16.enabled is false"},
    {"zero_optimization.stage", gradients_are_reduced, "there is one data-parallel rank to share with"},
    {"zero_optimization.overlap_comm", [](const Config& c) { return c.zero_optimization.stage > 0; },
     "zero_optimization.stage is 0; see communication.overlap_grad_reduce"},
    {"zero_optimization.reduce_bucket_size", [](const Config& c) { return c.zero_optimization.stage > 0; },
     "zero_optimization.stage is 0; see communication.bucket_size_mb"},
    {"zero_optimization.allgather_bucket_size", [](const Config&) { return false; },
     "weights are gathered in the buckets of zero_optimization.reduce_bucket_size, stage 3 by layers"},
    {"zero_optimization.stage3_", [](const Config& c) { return c.zero_optimization.stage == 3; },
     "zero_optimization.stage is not 3"},
    {"zero_optimization.reshard_after_forward", [](const Config& c) { return c.zero_optimization.stage == 3; },
     "zero_optimization.stage is not 3"},
    {"zero_optimization.offload_optimizer.pin_memory",
     [](const Config& c) { return c.zero_optimization.offload_optimizer.device != OffloadDevice::none; },
     "nothing is offloaded"},
    {"parallel.sequence_parallel", [](const Config& c) { return c.parallel.tensor_parallel_size > 1; },
     "parallel.tensor_parallel_size is 1"},
    {"parallel.gather_output", [](const Config& c) { return c.parallel.tensor_parallel_size > 1; },
     "parallel.tensor_parallel_size is 1"},
    {"parallel.pipeline_schedule", [](const Config& c) { return c.parallel.pipeline_parallel_size > 1; },
     "parallel.pipeline_parallel_size is 1"},
    {"parallel.pipeline_layers", [](const Config& c) { return c.parallel.pipeline_parallel_size > 1; },
     "parallel.pipeline_parallel_size is 1"},
    {"communication.overlap_grad_reduce", gradients_are_reduced, "there is one data-parallel rank"},
    {"communication.overlap_grad_reduce", [](const Config& c) { return c.zero_optimization.stage == 0; },
     "zero_optimization.stage is not 0; see zero_optimization.overlap_comm"},
    {"communication.bucket_size_mb", gradients_are_reduced, "there is one data-parallel rank"},
    {"communication.bucket_size_mb", [](const Config& c) { return c.zero_optimization.stage == 0; },
     "zero_optimization.stage is not 0; see zero_optimization.reduce_bucket_size"},
    {"communication.topk_ratio",
     [](const Config& c) { return c.communication.gradient_compression == GradientCompression::topk; },
     "communication.gradient_compression is not topk"},
    {"communication.emulated_link.", [](const Config& c) { return c.world_size > 1; }, "there is one rank"},
    {"checkpoint.keep", [](const Config& c) { return !c.checkpoint.dir.empty(); }, "checkpoint.dir is not set"},
    {"checkpoint.async", [](const Config& c) { return !c.checkpoint.async; },
     "checkpoints are written between steps for now"},
    {"elastic.max_restarts", [](const Config& c) { return !c.checkpoint.dir.empty() || c.elastic.max_restarts == 0; },
     "checkpoint.dir is not set: a rank's death ends the run"},
};

// Choices that work, but cost what their user may not expect.
struct Advice {
  bool (*applies)(const Config&);
  const char* text;
};

constexpr Advice kAdvice[] = {
    {[](const Config& c) {
       return c.zero_optimization.stage >= 2 && c.gradient_accumulation_steps > 1 && gradients_are_reduced(c);
     },
     "zero_optimization.stage 2 and 3 reduce-scatter gradients in every microbatch: gradient_accumulation_steps times "
     "the volume of stage 1, which reduces once a step"},
    {[](const Config& c) {
       return c.zero_optimization.stage == 3 && c.zero_optimization.reshard_after_forward &&
              c.parallel.pipeline_parallel_size > 1 && gradients_are_reduced(c);
     },
     "zero_optimization.stage 3 in a pipeline gathers each layer's weights for every microbatch's forward and "
     "backward; "
     "zero_optimization.reshard_after_forward false gathers them once a microbatch, stage 1 never"},
};

// A value that equals the default says nothing: full configs, as --print-config prints them, stay free of remarks.
bool is_default(const std::string& key, const Json& effective, const Json& defaults) {
  const std::string pointer = "/" + [&] {
    std::string path = key;
    for (char& c : path) c = c == '.' ? '/' : c;
    return path;
  }();
  const Json::json_pointer place(pointer);
  return effective.contains(place) && defaults.contains(place) && effective[place] == defaults[place];
}

}  // namespace

std::vector<std::string> notes(const Config& config) {
  std::vector<std::string> out = config.provenance.notes;
  const Json effective = to_json(config), defaults = to_json(Config{});
  for (const std::string& key : config.provenance.keys_set) {
    if (is_default(key, effective, defaults)) continue;
    for (const Condition& condition : kConditions) {
      if (!key.starts_with(condition.prefix) || condition.active(config)) continue;
      out.push_back(key + " does nothing: " + condition.because);
      break;
    }
  }
  for (const Advice& advice : kAdvice) {
    if (advice.applies(config)) out.push_back(advice.text);
  }
  return out;
}

}  // namespace taut::config
