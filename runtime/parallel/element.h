// A tensor's element type as the kernels name it.
#pragma once

#include <torch/types.h>

#include "kernels/element.h"

namespace taut::parallel {

/// Throws c10::Error for any type but fp32, bf16 and fp16.
inline kernels::Element element_of(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kBFloat16) return kernels::Element::bf16;
  if (tensor.scalar_type() == at::kHalf) return kernels::Element::fp16;
  TORCH_CHECK(tensor.scalar_type() == at::kFloat, "fp32, bf16 or fp16 expected, not ", tensor.scalar_type());
  return kernels::Element::fp32;
}

}  // namespace taut::parallel
