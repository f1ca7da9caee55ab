// Model FLOPs utilisation: the model's floating-point operations per second over what the devices could do.
#include <string_view>

#include "analyzer/metrics/summary.h"
#include "analyzer/timeline/run_config.h"
#include "runtime/config/model_math.h"

namespace taut::metrics {
namespace {

// Dense peak of bf16/fp16 matrix products, FLOP/s, from NVIDIA's data sheets (half of the figures "with sparsity"). The
// first name that the device's name contains.
struct DevicePeak {
  std::string_view name;
  double flops;
};
constexpr DevicePeak kPeaks[] = {
    {"H100 PCIe", 756e12}, {"H100 NVL", 835e12}, {"H100", 989.4e12}, {"H200", 989.4e12}, {"A100", 312e12},
    {"V100", 125e12},      {"L40S", 362e12},     {"L4", 121e12},     {"A10", 125e12},
};

}  // namespace

std::optional<double> measure_mfu(const timeline::Timeline& timeline, double tokens_per_s) {
  const auto config = timeline::run_config(timeline);
  if (!config || !(config->bf16.enabled || config->fp16.enabled) || tokens_per_s <= 0) return std::nullopt;
  double peak = 0;
  for (const timeline::Rank& rank : timeline.ranks) {
    const auto device = timeline.device_names.find(rank.device);
    if (device == timeline.device_names.end()) return std::nullopt;
    double flops = 0;
    for (const DevicePeak& known : kPeaks) {
      if (flops == 0 && device->second.find(known.name) != std::string::npos) flops = known.flops;
    }
    if (flops == 0) return std::nullopt;
    peak += flops;
  }
  if (peak == 0) return std::nullopt;
  return config::flops_per_token(config->model) * tokens_per_s / peak;
}

}  // namespace taut::metrics
