// SwiGLU (Shazeer, "GLU Variants Improve Transformer", arXiv 2002.05202) of rows [gate | up], one pass each way:
//
//   y_i = silu(gate_i) · up_i                 with silu(g) = g · σ(g), σ the logistic function
//   dgate_i = dy_i · up_i · σ(g) (1 + g (1 − σ(g)))        dup_i = dy_i · silu(gate_i)
//
// Arithmetic is fp32, rounded once. The kernels split no work over threads; callers may call the CPU twins on disjoint
// rows at the same time.
#pragma once

#include <cstdint>

#include "kernels/element.h"
#include "kernels/instruction_set.h"

namespace taut::kernels {

struct SwigluForward {
  const void* gate_up = nullptr;  // [rows, 2 · width]
  void* y = nullptr;              // [rows, width]
  Element type = Element::fp32;   // of all of them
  int64_t rows = 0, width = 0;
};

struct SwigluBackward {
  const void *gate_up = nullptr, *dy = nullptr;
  void* dgate_up = nullptr;  // [rows, 2 · width]
  Element type = Element::fp32;
  int64_t rows = 0, width = 0;
};

/// Host memory; `stream` is ignored.
void swiglu_forward_cpu(const SwigluForward& work, void* stream = nullptr);
void swiglu_backward_cpu(const SwigluBackward& work, void* stream = nullptr);

/// Device memory; asynchronous on `stream` (a cudaStream_t). Throw taut::Error when the launch fails, and always in a
/// build without nvcc.
void swiglu_forward_cuda(const SwigluForward& work, void* stream = nullptr);
void swiglu_backward_cuda(const SwigluBackward& work, void* stream = nullptr);

/// The CPU twins with a chosen instruction set, for tests.
void swiglu_forward_cpu_with(InstructionSet set, const SwigluForward& work);
void swiglu_backward_cpu_with(InstructionSet set, const SwigluBackward& work);

}  // namespace taut::kernels
