// Steps of the model as single autograd operations over kernels/: one pass over memory each way instead of several.
// Without a kernel for the device (meta tensors of a dry run) they are their composition.
#pragma once

#include <torch/types.h>

namespace taut::model {

/// RMSNorm (Zhang & Sennrich, arXiv 1910.07467) over the last dimension: x / sqrt(mean(x²) + epsilon) · weight. Input
/// and weight are fp32; the result is of type `output`, fp32, bf16 or fp16: what the consumer reads.
at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon, at::ScalarType output);

struct QueryKeyValue {
  at::Tensor query, key, value;
};

/// Takes packed heads [batch, seq, heads + 2 · groups, head_dim] (fp32, bf16 or fp16; queries, keys, values) apart and
/// turns queries and keys by their positions, rotary position embedding (Su et al., arXiv 2104.09864): out[i] =
/// x[i]·cos − x[i + half]·sin, out[i + half] = x[i + half]·cos + x[i]·sin for i < half = head_dim / 2. `cos`, `sin` are
/// fp32 [seq, half], or undefined: nothing turns. Computed in fp32, returned in the input's type.
QueryKeyValue split_heads(const at::Tensor& packed, int64_t heads, int64_t groups, const at::Tensor& cos,
                          const at::Tensor& sin);

/// silu(gate) · up (Shazeer, arXiv 2002.05202) of `gate_up` [.., 2 · n], gate first: [.., n] of the same type, fp32,
/// bf16 or fp16. Computed in fp32.
at::Tensor swiglu(const at::Tensor& gate_up);

}  // namespace taut::model
