// Page-locked host memory: what a GPU copies from without a detour, while the host goes on.
#pragma once

#include <cstddef>
#include <span>

namespace taut::train {

/// Locks `memory` for the CUDA runtime while it lives. On a machine without CUDA, or where locking fails (a limit on
/// locked memory), it does nothing: copies then take the detour.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(std::span<std::byte> memory);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  bool pinned() const { return pinned_ != nullptr; }

 private:
  std::byte* pinned_ = nullptr;
};

}  // namespace taut::train
