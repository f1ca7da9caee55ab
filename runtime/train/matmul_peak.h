// The peak that model FLOP utilisation is measured against.
#pragma once

#include <torch/types.h>

namespace taut::train {

/// Floating-point operations per second that this rank's device can do in matrix products of `dtype`: from a table for
/// known GPUs (dense, vendor's numbers), else the best of a few square products, measured now with the threads that the
/// rank trains with (tens of milliseconds).
double matmul_peak(at::Device device, at::ScalarType dtype);

}  // namespace taut::train
