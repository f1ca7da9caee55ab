// What the CUDA kernels share: types as they lie in memory, sums over a block, launches that report their failure.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/element.h"
#include "taut.h"

namespace taut::kernels {

constexpr int kThreads = 256;  // of a block; a multiple of the warp's 32

inline __device__ float to_float(float value) {
  return value;
}
inline __device__ float to_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
inline __device__ float to_float(__half value) {
  return __half2float(value);
}
inline __device__ void store(float* at, float value) {
  *at = value;
}
inline __device__ void store(__nv_bfloat16* at, float value) {
  *at = __float2bfloat16_rn(value);
}
inline __device__ void store(__half* at, float value) {
  *at = __float2half_rn(value);
}

/// Calls `use` with a typed null pointer of that element.
template <class Use>
void with_device_type(Element type, Use use) {
  if (type == Element::fp32) return use(static_cast<float*>(nullptr));
  if (type == Element::bf16) return use(static_cast<__nv_bfloat16*>(nullptr));
  use(static_cast<__half*>(nullptr));
}

/// Joins one value of each thread of a block of kThreads by `join`; every thread gets the result. All must call it.
template <class Join>
__device__ float over_block(float value, Join join) {
  __shared__ float of_warp[kThreads / 32];
  for (int distance = 16; distance > 0; distance /= 2) {
    value = join(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  __syncthreads();  // the array may still be read for the call before
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  value = of_warp[0];
  for (int warp = 1; warp < kThreads / 32; ++warp) value = join(value, of_warp[warp]);
  return value;
}

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Largest {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// Blocks for `count` independent pieces of work, over which a kernel strides.
inline int blocks_for(int64_t count, int64_t most = 65535) {
  return static_cast<int>(std::min<int64_t>(count, most));
}

/// After a launch.
inline void check_launch(const char* kernel) {
  if (const cudaError_t failure = cudaGetLastError(); failure != cudaSuccess) {
    throw Error(std::string("the ") + kernel + " kernel did not start: " + cudaGetErrorString(failure),
                "the GPU's architecture may be none of CMAKE_CUDA_ARCHITECTURES");
  }
}

}  // namespace taut::kernels
