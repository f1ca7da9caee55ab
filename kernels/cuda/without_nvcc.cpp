// The CUDA twins of a build without nvcc: calling one is an error that says so.
#include "kernels/adamw.h"
#include "kernels/cross_entropy.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "taut.h"

namespace taut::kernels {
namespace {

[[noreturn]] void refuse() {
  throw Error("this build has no CUDA kernels", "install the CUDA toolkit (nvcc) and configure again");
}

}  // namespace

void adamw_cuda(float*, const float*, float*, float*, int64_t, const AdamWStep&, void*) {
  refuse();
}
void cross_entropy_forward_cuda(const Logits&, const SoftmaxStatistics&, void*) {
  refuse();
}
void cross_entropy_backward_cuda(const Logits&, const float*, const float*, void*) {
  refuse();
}
void rms_norm_forward_cuda(const RmsNormForward&, void*) {
  refuse();
}
void rms_norm_backward_cuda(const RmsNormBackward&, void*) {
  refuse();
}
void rope_cuda(const Rope&, void*) {
  refuse();
}
void swiglu_forward_cuda(const SwigluForward&, void*) {
  refuse();
}
void swiglu_backward_cuda(const SwigluBackward&, void*) {
  refuse();
}

}  // namespace taut::kernels
