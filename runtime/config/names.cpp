#include "runtime/config/names.h"

namespace taut::config {
namespace {

constexpr const char* kNormalization[] = {"rmsnorm", "layernorm"};
constexpr const char* kActivation[] = {"swiglu", "gelu"};
constexpr const char* kPositionEmbedding[] = {"rope", "learned"};
constexpr const char* kAttention[] = {"dense", "sliding_window", "block_sparse"};
constexpr const char* kOptimizerType[] = {"AdamW", "Lion", "OneBitAdam", "SGD"};
constexpr const char* kSchedulerType[] = {"WarmupCosineLR", "WarmupLR", "constant"};
constexpr const char* kPipelineSchedule[] = {"1f1b", "gpipe", "interleaved_1f1b", "zero_bubble"};
constexpr const char* kGradientCompression[] = {"none", "fp16", "bf16", "int8", "topk"};
constexpr const char* kCheckpointingMode[] = {"none", "selective", "full"};
constexpr const char* kOffloadDevice[] = {"none", "cpu"};

}  // namespace

std::span<const char* const> names_of(Normalization) {
  return kNormalization;
}
std::span<const char* const> names_of(Activation) {
  return kActivation;
}
std::span<const char* const> names_of(PositionEmbedding) {
  return kPositionEmbedding;
}
std::span<const char* const> names_of(Attention) {
  return kAttention;
}
std::span<const char* const> names_of(OptimizerType) {
  return kOptimizerType;
}
std::span<const char* const> names_of(SchedulerType) {
  return kSchedulerType;
}
std::span<const char* const> names_of(PipelineSchedule) {
  return kPipelineSchedule;
}
std::span<const char* const> names_of(GradientCompression) {
  return kGradientCompression;
}
std::span<const char* const> names_of(CheckpointingMode) {
  return kCheckpointingMode;
}
std::span<const char* const> names_of(OffloadDevice) {
  return kOffloadDevice;
}

}  // namespace taut::config
