#include "runtime/config/pipeline_math.h"

#include <algorithm>

#include "runtime/config/model_math.h"

namespace taut::config {

std::vector<int64_t> layers_per_virtual_stage(const Config& config) {
  const int64_t chunks = config.parallel.virtual_pipeline_stages;
  if (chunks == 1) return layers_per_stage(config);
  const int64_t stages = config.parallel.pipeline_parallel_size * chunks, layers = config.model.num_layers;
  std::vector<int64_t> split(static_cast<size_t>(stages), layers / stages);
  for (int64_t stage = 0; stage < layers % stages; ++stage) ++split[static_cast<size_t>(stage)];
  return split;
}

double ideal_bubble_fraction(PipelineSchedule schedule, int64_t stages, int64_t microbatches, int64_t chunks,
                             const PassTimes& t) {
  if (stages <= 1 || microbatches < 1) return 0;
  const double p = static_cast<double>(stages), m = static_cast<double>(microbatches), v = static_cast<double>(chunks);
  const double all = t.forward + t.backward + t.weight_gradient, chain = t.forward + t.backward;
  if (schedule == PipelineSchedule::zero_bubble && all > 0) {
    const double step =
        std::max(m * all + (p - 1) * (chain - t.weight_gradient), (m + p - 1) * chain + t.weight_gradient);
    return 1 - m * all / step;
  }
  return (p - 1) / ((schedule == PipelineSchedule::interleaved_1f1b ? v : 1) * m + p - 1);
}

int64_t warm_up_passes(PipelineSchedule schedule, int64_t stages, int64_t stage, int64_t microbatches, int64_t chunks) {
  if (schedule == PipelineSchedule::gpipe) return microbatches;
  if (schedule == PipelineSchedule::interleaved_1f1b && chunks > 1) {
    return std::min(2 * (stages - 1 - stage) + (chunks - 1) * stages, microbatches * chunks);
  }
  return std::min(stages - 1 - stage, microbatches);
}

int64_t passes_in_flight(PipelineSchedule schedule, int64_t stages, int64_t stage, int64_t microbatches,
                         int64_t chunks) {
  // Without a pipeline each microbatch's backward follows its forward, whatever the schedule's name.
  if (stages <= 1) return std::min<int64_t>(1, microbatches);
  if (schedule == PipelineSchedule::gpipe) return microbatches;
  if (schedule == PipelineSchedule::zero_bubble) return std::min(stages, microbatches);
  const int64_t passes = microbatches * (schedule == PipelineSchedule::interleaved_1f1b ? chunks : 1);
  return std::min(warm_up_passes(schedule, stages, stage, microbatches, chunks) + 1, passes);
}

}  // namespace taut::config
