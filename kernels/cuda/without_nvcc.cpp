// The CUDA twins of a build without nvcc: calling one is an error that says so.
#include "kernels/adamw.h"
#include "taut.h"

namespace taut::kernels {

void adamw_cuda(float*, const float*, float*, float*, int64_t, const AdamWStep&, void*) {
  throw Error("this build has no CUDA kernels", "install the CUDA toolkit (nvcc) and configure again");
}

}  // namespace taut::kernels
