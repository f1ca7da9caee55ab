#include "runtime/train/matmul_peak.h"

#include <algorithm>
#include <chrono>
#include <string>

#if defined(USE_C10D_NCCL)
#include <cuda_runtime_api.h>
// ATen/cuda/CUDAContext.h would want the headers of every CUDA library; this is all that is needed of it.
namespace at::cuda {
TORCH_CUDA_CPP_API cudaDeviceProp* getDeviceProperties(c10::DeviceIndex device);
}
#endif

namespace taut::train {
namespace {

struct GpuPeak {
  const char* name;  // part of the device's name
  double half, fp32;
};
// Dense tensor-core bf16 or fp16 and plain fp32, in FLOP/s (NVIDIA data sheets, SXM).
[[maybe_unused]] constexpr GpuPeak kGpuPeaks[] = {{"H200", 989e12, 67e12},
                                                  {"H100", 989e12, 67e12},
                                                  {"A100", 312e12, 19.5e12},
                                                  {"B200", 2250e12, 80e12},
                                                  {"L40S", 362e12, 91.6e12}};

double table_peak(at::Device device, at::ScalarType dtype) {
#if defined(USE_C10D_NCCL)
  if (!device.is_cuda()) return 0;
  const std::string name = at::cuda::getDeviceProperties(device.index())->name;
  for (const GpuPeak& gpu : kGpuPeaks) {
    if (name.find(gpu.name) != std::string::npos) return dtype == at::kFloat ? gpu.fp32 : gpu.half;
  }
#else
  (void)device, (void)dtype;
#endif
  return 0;
}

}  // namespace

double matmul_peak(at::Device device, at::ScalarType dtype) {
  if (const double known = table_peak(device, dtype); known > 0) return known;
  const at::NoGradGuard no_grad;
  constexpr int64_t kSide = 768;
  const auto options = at::TensorOptions().dtype(dtype).device(device);
  const at::Tensor a = at::ones({kSide, kSide}, options), b = at::ones({kSide, kSide}, options);
  double best = 0;
  for (int repeat = 0; repeat < 4; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    // Reading one element waits for the device.
    at::mm(a, b)[0][0].item<double>();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, 2.0 * kSide * kSide * kSide / seconds);
  }
  return best;
}

}  // namespace taut::train
