// Bytes that this rank's tensors take, as the allocator counts them.
//
// On the CPU LibTorch keeps no such count: count_cpu_memory() puts a counting allocator in front of the one LibTorch
// uses. On a GPU the caching allocator's own statistics are read. Memory that does not hold tensors (a matrix library's
// scratch space, the network's buffers, code) is not counted; the resident set, which holds everything, is given
// beside. Thread safety: every function may be called from any thread.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace taut::train {

struct AllocatedMemory {
  int64_t allocated = 0;  // now
  int64_t peak = 0;       // the most at once since reset_memory_peak(), or since the start
  int64_t reserved = 0;   // what the allocator took from the device; on the CPU the same as `allocated`
  int64_t resident = 0;   // of the whole process, in RAM
};

/// Counts what the CPU allocator hands out from now on. Call it once, before the first tensor: memory handed out
/// before is neither counted nor taken off when it is freed. Costs two relaxed atomic additions an allocation.
void count_cpu_memory();

/// Of `device`. On the CPU, allocated and peak are 0 unless count_cpu_memory() was called.
AllocatedMemory allocated_memory(c10::Device device);

/// From now on, `peak` is the most since now.
void reset_memory_peak(c10::Device device);

}  // namespace taut::train
