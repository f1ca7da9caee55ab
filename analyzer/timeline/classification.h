// Gives a slice its kind: by the table that describes it (done by the loader), else by its domain and name, here.
#pragma once

#include <string_view>

#include "analyzer/timeline/timeline.h"

namespace taut::timeline {

/// A GPU kernel: communication when its name is one of a collective library's, else compute.
Kind classify_kernel(std::string_view name);

/// A CUDA runtime or driver call: sync when it blocks until the GPU is done, else host.
Kind classify_cuda_call(std::string_view name);

/// An NVTX range of a domain ("taut", "PyTorch", "NCCL", "" = none). Host operations count as compute; on a rank with
/// GPU work the loader turns them into host.
Kind classify_range(std::string_view domain, std::string_view name);

}  // namespace taut::timeline
