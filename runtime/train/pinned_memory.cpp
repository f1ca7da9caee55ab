#include "runtime/train/pinned_memory.h"

#include <dlfcn.h>

namespace taut::train {
namespace {

// LibTorch's CUDA build has the CUDA runtime loaded; a CPU build has not.
using Register = int (*)(void* memory, size_t bytes, unsigned flags);
using Unregister = int (*)(void* memory);
using GetLastError = int (*)();

template <class Function>
Function cuda_function(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace

PinnedMemory::PinnedMemory(std::span<std::byte> memory) {
  const auto lock = cuda_function<Register>("cudaHostRegister");
  if (lock == nullptr || memory.empty()) return;
  if (lock(memory.data(), memory.size(), /*flags=*/0) == 0) {
    pinned_ = memory.data();
  } else if (const auto forget = cuda_function<GetLastError>("cudaGetLastError")) {
    forget();  // whoever launches the next kernel would take the error for its own
  }
}

PinnedMemory::~PinnedMemory() {
  if (pinned_ == nullptr) return;
  if (const auto unlock = cuda_function<Unregister>("cudaHostUnregister")) unlock(pinned_);
}

}  // namespace taut::train
