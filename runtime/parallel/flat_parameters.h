// All parameters of one rank in one flat fp32 buffer, all gradients in another. Parameters and their .grad become
// views, so that gradient buckets and the optimizer work on contiguous memory without copies.
#pragma once

#include <vector>

#include "runtime/parallel/parameter.h"

namespace taut::parallel {

/// Where a parameter lies in the flat buffers, in elements.
struct Span {
  int64_t offset = 0, count = 0;
  size_t parameter = 0;  // index into FlatParameters::parameters
};

struct FlatParameters {
  std::vector<Parameter> parameters;  // in order of use in the forward pass
  at::Tensor values, gradients;       // [total], fp32, on the parameters' device; gaps between spans are zero
  std::vector<Span> spans;            // in reverse order of use: the order in which backward finishes gradients
};

/// Moves the parameters (in order of use) into flat buffers. Their tensors stay the same leaves. Spans start at
/// multiples of 64 bytes.
FlatParameters flatten(std::vector<Parameter> parameters);

}  // namespace taut::parallel
