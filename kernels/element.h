// The floating-point types that kernels read and write. Arithmetic is fp32 whatever the type.
#pragma once

#include <cstdint>

namespace taut::kernels {

enum class Element { fp32, bf16, fp16 };

inline int64_t bytes_of(Element type) {
  return type == Element::fp32 ? 4 : 2;
}

}  // namespace taut::kernels
