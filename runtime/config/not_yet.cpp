#include "runtime/config/not_yet.h"

#include "runtime/config/names.h"

namespace taut::config {
namespace {

std::string quoted(const char* text) {
  return "\"" + std::string(text) + "\"";
}

}  // namespace

const std::vector<NotYet>& not_yet() {
  static const std::vector<NotYet> table = {
      {"zero_optimization.stage", "1, 2, 3", [](const Config& c) { return c.zero_optimization.stage > 0; },
       []([[maybe_unused]] const Config& c) { return std::to_string(c.zero_optimization.stage); },
       "set zero_optimization.stage to 0"},
      {"zero_optimization.offload_optimizer.device", "\"cpu\"",
       [](const Config& c) { return c.zero_optimization.offload_optimizer.device != OffloadDevice::none; },
       []([[maybe_unused]] const Config& c) { return quoted(name(c.zero_optimization.offload_optimizer.device)); },
       "set zero_optimization.offload_optimizer.device to \"none\""},
      {"parallel.context_parallel_size", "above 1",
       [](const Config& c) { return c.parallel.context_parallel_size > 1; },
       []([[maybe_unused]] const Config& c) { return std::to_string(c.parallel.context_parallel_size); },
       "set parallel.context_parallel_size to 1"},
      {"parallel.expert_parallel_size", "above 1", [](const Config& c) { return c.parallel.expert_parallel_size > 1; },
       []([[maybe_unused]] const Config& c) { return std::to_string(c.parallel.expert_parallel_size); },
       "set parallel.expert_parallel_size to 1"},
      {"model.num_experts", "above 0", [](const Config& c) { return c.model.num_experts > 0; },
       []([[maybe_unused]] const Config& c) { return std::to_string(c.model.num_experts); },
       "set model.num_experts to 0"},
      {"parallel.expert_placement", "a list", [](const Config& c) { return c.parallel.expert_placement.has_value(); },
       []([[maybe_unused]] const Config& c) { return std::string("[…]"); }, "set parallel.expert_placement to null"},
      {"parallel.sequence_parallel", "true", [](const Config& c) { return c.parallel.sequence_parallel; },
       []([[maybe_unused]] const Config& c) { return std::string("true"); }, "set parallel.sequence_parallel to false"},
      {"parallel.pipeline_schedule", "\"interleaved_1f1b\", \"zero_bubble\"",
       [](const Config& c) {
         return c.parallel.pipeline_schedule != PipelineSchedule::one_f_one_b &&
                c.parallel.pipeline_schedule != PipelineSchedule::gpipe;
       },
       []([[maybe_unused]] const Config& c) { return quoted(name(c.parallel.pipeline_schedule)); },
       "set parallel.pipeline_schedule to \"1f1b\" or \"gpipe\""},
      {"parallel.virtual_pipeline_stages", "above 1",
       [](const Config& c) { return c.parallel.virtual_pipeline_stages > 1; },
       []([[maybe_unused]] const Config& c) { return std::to_string(c.parallel.virtual_pipeline_stages); },
       "set parallel.virtual_pipeline_stages to 1"},
      {"fp16.enabled", "true", [](const Config& c) { return c.fp16.enabled; },
       []([[maybe_unused]] const Config& c) { return std::string("true"); },
       "set bf16.enabled to true and fp16.enabled to false"},
      {"communication.gradient_compression", "all but \"none\"",
       [](const Config& c) { return c.communication.gradient_compression != GradientCompression::none; },
       []([[maybe_unused]] const Config& c) { return quoted(name(c.communication.gradient_compression)); },
       "set communication.gradient_compression to \"none\""},
      {"activation_checkpointing.mode", "\"selective\", \"full\"",
       [](const Config& c) { return c.activation_checkpointing.mode != CheckpointingMode::none; },
       []([[maybe_unused]] const Config& c) { return quoted(name(c.activation_checkpointing.mode)); },
       "set activation_checkpointing.mode to \"none\""},
      {"model.attention", "\"sliding_window\", \"block_sparse\"",
       [](const Config& c) { return c.model.attention != Attention::dense; },
       []([[maybe_unused]] const Config& c) { return quoted(name(c.model.attention)); },
       "set model.attention to \"dense\""},
      {"optimizer.type", "all but \"AdamW\"", [](const Config& c) { return c.optimizer.type != OptimizerType::AdamW; },
       []([[maybe_unused]] const Config& c) { return quoted(name(c.optimizer.type)); },
       "set optimizer.type to \"AdamW\""},
      {"checkpoint.snapshot_interval_steps", "above 0",
       [](const Config& c) { return c.checkpoint.snapshot_interval_steps > 0; },
       []([[maybe_unused]] const Config& c) { return std::to_string(c.checkpoint.snapshot_interval_steps); },
       "set checkpoint.snapshot_interval_steps to 0 and checkpoint.interval_steps to what you need"},
  };
  return table;
}

}  // namespace taut::config
