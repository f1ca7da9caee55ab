// Rotary position embedding (Su et al., arXiv 2104.09864) of heads, one pass: with half = head_dim / 2 and i < half
//
//   y_i = x_i · cos − x_{i+half} · sin        y_{i+half} = x_{i+half} · cos + x_i · sin
//
// Its gradient is the rotation the other way. The kernels split no work over threads; callers may call the CPU twin on
// disjoint rows at the same time.
#pragma once

#include <cstdint>

#include "kernels/element.h"
#include "kernels/instruction_set.h"

namespace taut::kernels {

struct Rope {
  const void* x = nullptr;       // row r starts at r · x_stride elements; its heads are packed
  void* y = nullptr;             // likewise, at r · y_stride
  Element type = Element::fp32;  // of both
  int64_t first_row = 0, rows = 0, x_stride = 0, y_stride = 0, heads = 0, head_dim = 0;
  int64_t positions = 0;                       // row r stands at position r mod positions
  const float *cos = nullptr, *sin = nullptr;  // [positions, head_dim / 2]
  float direction = 1.0f;                      // −1 turns back
};

/// Rows [first_row, first_row + rows). Host memory; `stream` is ignored.
void rope_cpu(const Rope& work, void* stream = nullptr);
/// Device memory; asynchronous on `stream` (a cudaStream_t). Throws taut::Error when the launch fails, and always in a
/// build without nvcc.
void rope_cuda(const Rope& work, void* stream = nullptr);
/// The CPU twin with a chosen instruction set, for tests.
void rope_cpu_with(InstructionSet set, const Rope& work);

}  // namespace taut::kernels
