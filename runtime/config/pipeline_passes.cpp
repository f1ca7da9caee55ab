#include "runtime/config/pipeline_passes.h"

#include <algorithm>

#include "runtime/config/pipeline_math.h"

namespace taut::config {

bool splits_backward(PipelineSchedule schedule) {
  return schedule == PipelineSchedule::zero_bubble;
}

std::vector<Pass> pipeline_passes(PipelineSchedule schedule, int stages, int stage, int microbatches, int chunks) {
  const int per_kind = microbatches * chunks, group = stages * chunks;
  // The k-th forward or backward: `stages` microbatches through one chunk, then the same ones through the next.
  const auto pass = [&](PassKind kind, int k) {
    if (chunks == 1) return Pass{kind, k, 0};
    const int chunk = k % group / stages;
    return Pass{kind, k / group * stages + k % stages, kind == PassKind::forward ? chunk : chunks - 1 - chunk};
  };
  const int warm_up = static_cast<int>(warm_up_passes(schedule, stages, stage, microbatches, chunks));
  const bool splits = splits_backward(schedule);
  const int delay = stage;  // of a weight gradient behind its backward, in microbatches

  std::vector<Pass> order;
  const auto backward = [&](int k) {
    order.push_back(pass(PassKind::backward, k));
    if (splits && k >= delay) order.push_back(pass(PassKind::weight_gradient, k - delay));
  };
  for (int k = 0; k < warm_up; ++k) order.push_back(pass(PassKind::forward, k));
  for (int k = warm_up; k < per_kind; ++k) {
    order.push_back(pass(PassKind::forward, k));
    backward(k - warm_up);
  }
  for (int k = per_kind - warm_up; k < per_kind; ++k) backward(k);
  if (splits) {
    for (int k = std::max(0, per_kind - delay); k < per_kind; ++k) order.push_back(pass(PassKind::weight_gradient, k));
  }
  return order;
}

}  // namespace taut::config
