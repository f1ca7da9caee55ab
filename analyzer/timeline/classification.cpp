#include "analyzer/timeline/classification.h"

#include <algorithm>
#include <cctype>

namespace taut::timeline {
namespace {

struct NameRule {
  std::string_view pattern;
  Kind kind;
};

// Kernels of collective libraries, anywhere in the lower-case name.
constexpr std::string_view kCommunicationKernels[] = {"nccl", "rccl", "oneccl", "nvshmem", "cross_device_reduce"};

// CUDA calls that block the host until the device has caught up.
constexpr std::string_view kBlockingCalls[] = {"cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize",
                                               "cudaThreadSynchronize", "cuCtxSynchronize",      "cuStreamSynchronize",
                                               "cuEventSynchronize",    "hipDeviceSynchronize",  "hipStreamSynchronize",
                                               "hipEventSynchronize"};

// Names in our own domain, exact.
constexpr NameRule kTautNames[] = {
    {"step", Kind::step},
    {"microbatch F", Kind::compute},
    {"microbatch B", Kind::compute},
    {"microbatch W", Kind::compute},
    {"optimizer", Kind::compute},
    {"clip_grad", Kind::compute},
    {"wait", Kind::communication},
    {"batch_wait", Kind::loader},
    {"read", Kind::loader},
    {"tokenize", Kind::loader},
    {"pack", Kind::loader},
    {"hand_over", Kind::loader},
    {"blocked", Kind::sync},
    {"checkpoint", Kind::checkpoint},
    {"init", Kind::host},
    {"issue", Kind::host},
};

// Names of other programs' ranges, by prefix; the first that fits.
constexpr NameRule kForeignPrefixes[] = {
    {"ProfilerStep#", Kind::step},
    {"Optimizer.step#", Kind::compute},
    {"Optimizer.zero_grad#", Kind::compute},
    {"enumerate(DataLoader)", Kind::loader},
    {"c10d::", Kind::communication},
    {"gloo:", Kind::communication},
    {"nccl", Kind::communication},
    {"record_param_comms", Kind::communication},
    {"DistributedDataParallel.forward", Kind::other},
    {"aten::", Kind::compute},
    {"autograd::", Kind::compute},
    {"torch::autograd::", Kind::compute},
    {"cudaMemcpy", Kind::copy},
};

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

}  // namespace

Kind classify_kernel(std::string_view name) {
  const std::string lowered = lower(name);
  for (std::string_view pattern : kCommunicationKernels) {
    if (lowered.find(pattern) != std::string::npos) return Kind::communication;
  }
  return Kind::compute;
}

Kind classify_cuda_call(std::string_view name) {
  for (std::string_view call : kBlockingCalls) {
    if (name.starts_with(call)) return Kind::sync;  // nsys appends an ABI suffix, as in cudaStreamSynchronize_v3020
  }
  return Kind::host;
}

Kind classify_range(std::string_view domain, std::string_view name) {
  if (domain == "taut") {
    for (const NameRule& rule : kTautNames) {
      if (name == rule.pattern) return rule.kind;
    }
    return Kind::other;
  }
  for (const NameRule& rule : kForeignPrefixes) {
    if (name.starts_with(rule.pattern)) return rule.kind;
  }
  if (domain == "NCCL") return Kind::communication;
  if (domain == "PyTorch") return Kind::compute;
  return Kind::other;
}

}  // namespace taut::timeline
