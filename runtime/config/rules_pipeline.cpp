#include "runtime/config/names.h"
#include "runtime/config/rules.h"
#include "taut.h"

namespace taut::config {
namespace {

bool interleaved(const Config& c) {
  return c.parallel.pipeline_schedule == PipelineSchedule::interleaved_1f1b && c.parallel.pipeline_parallel_size > 1;
}

}  // namespace

void check_stages(const Config& c) {
  const int64_t stages = c.parallel.pipeline_parallel_size, layers = c.model.num_layers;
  if (stages > layers) {
    throw Error(
        "parallel.pipeline_parallel_size is " + text(stages) + ", more stages than model.num_layers = " + text(layers),
        "set parallel.pipeline_parallel_size to " + text(layers) + " or less");
  }
  if (!c.parallel.pipeline_layers) return;
  const auto& split = *c.parallel.pipeline_layers;
  if (static_cast<int64_t>(split.size()) != stages) {
    throw Error("parallel.pipeline_layers has " + text(static_cast<int64_t>(split.size())) +
                    " entries for parallel.pipeline_parallel_size = " + text(stages),
                "give one number of layers per stage, or set parallel.pipeline_layers to null for an even split");
  }
  double sum = 0;
  for (const int64_t entry : split) sum += static_cast<double>(entry);
  if (sum != static_cast<double>(layers)) {
    std::string list;
    for (const int64_t entry : split) list += (list.empty() ? "" : " + ") + text(entry);
    throw Error(
        "parallel.pipeline_layers gives " + list + " layers, but model.num_layers is " + text(layers),
        "make the entries sum to " + text(layers) + ", or set parallel.pipeline_layers to null for an even split");
  }
}

void check_virtual_stages(const Config& c) {
  const Parallel& p = c.parallel;
  const int64_t stages = p.pipeline_parallel_size, chunks = p.virtual_pipeline_stages, layers = c.model.num_layers;
  const std::string chunks_text = "parallel.virtual_pipeline_stages is " + text(chunks);
  if (chunks > 1 && stages == 1) {
    throw Error(chunks_text + ", but parallel.pipeline_parallel_size is 1: there is no pipeline to interleave",
                "set parallel.virtual_pipeline_stages to 1, or parallel.pipeline_parallel_size to 2 or more");
  }
  if (chunks > 1 && p.pipeline_schedule != PipelineSchedule::interleaved_1f1b) {
    throw Error(
        chunks_text + ", but parallel.pipeline_schedule \"" + name(p.pipeline_schedule) + "\" runs one chunk a stage",
        "set parallel.virtual_pipeline_stages to 1, or parallel.pipeline_schedule to \"interleaved_1f1b\"");
  }
  if (!interleaved(c)) return;
  const std::string plain = ", or parallel.pipeline_schedule to \"1f1b\" and parallel.virtual_pipeline_stages to 1";
  if (chunks < 2) {
    throw Error("parallel.pipeline_schedule \"interleaved_1f1b\" needs 2 chunks a stage or more, but " + chunks_text,
                "set parallel.virtual_pipeline_stages to 2" + plain);
  }
  if (p.pipeline_layers) {
    throw Error(
        "parallel.pipeline_layers is set, but parallel.pipeline_schedule \"interleaved_1f1b\" gives every chunk "
        "the same number of layers",
        "set parallel.pipeline_layers to null" + plain);
  }
  if (layers % (stages * chunks) != 0) {
    const int64_t per_stage = layers % stages == 0 ? nearest_divisor({layers / stages}, chunks) : 1;
    throw Error("model.num_layers is " + text(layers) +
                    ", which does not divide into parallel.pipeline_parallel_size × "
                    "parallel.virtual_pipeline_stages = " +
                    product({stages, chunks}) + " equal chunks",
                "set model.num_layers to a multiple such as " + text(next_multiple(layers, stages * chunks)) +
                    (per_stage > 1 ? ", or parallel.virtual_pipeline_stages to " + text(per_stage) : "") + plain);
  }
}

void check_interleaved_microbatches(const Config& c) {
  if (!interleaved(c)) return;
  const int64_t stages = c.parallel.pipeline_parallel_size, microbatches = c.gradient_accumulation_steps;
  if (microbatches % stages == 0) return;
  const int64_t next = next_multiple(microbatches, stages);
  throw Error("parallel.pipeline_schedule \"interleaved_1f1b\" needs a multiple of parallel.pipeline_parallel_size = " +
                  text(stages) + " microbatches, but gradient_accumulation_steps is " + text(microbatches),
              "set gradient_accumulation_steps to " + text(next) + " and train_batch_size to " +
                  text(next * c.train_micro_batch_size_per_gpu * c.data_parallel_size()) +
                  ", or parallel.pipeline_schedule to \"1f1b\" and parallel.virtual_pipeline_stages to 1");
}

void check_zero_bubble(const Config& c) {
  if (c.parallel.pipeline_schedule != PipelineSchedule::zero_bubble ||
      c.activation_checkpointing.mode != CheckpointingMode::full || c.parallel.pipeline_parallel_size == 1)
    return;
  throw Error(
      "activation_checkpointing.mode is \"full\", but parallel.pipeline_schedule \"zero_bubble\" computes weight "
      "gradients later than input gradients and keeps what recomputation would free",
      "set activation_checkpointing.mode to \"selective\", or parallel.pipeline_schedule to \"1f1b\"");
}

}  // namespace taut::config
