#include "runtime/train/allocated_memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

namespace taut::train {
namespace {

std::atomic<int64_t> now_bytes{0}, peak_bytes{0};

void add(int64_t bytes) {
  const int64_t now = now_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = peak_bytes.load(std::memory_order_relaxed);
  while (now > peak && !peak_bytes.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

/// Hands everything on to the allocator behind it. The block's size is asked of malloc, so that nothing is allocated
/// beside it and a block keeps the plain (pointer, deleter) form that c10::Allocator::raw_allocate needs.
class CountingAllocator : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* behind) : behind_(behind) { free_behind_ = behind->raw_deleter(); }

  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr block = behind_->allocate(bytes);
    if (block.get() == nullptr || block.get_context() != block.get()) return block;
    if (!block.compare_exchange_deleter(free_behind_, &free_counted)) return block;
    add(static_cast<int64_t>(malloc_usable_size(block.get())));
    return block;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_counted; }
  void copy_data(void* to, const void* from, size_t bytes) const override { behind_->copy_data(to, from, bytes); }

 private:
  static void free_counted(void* block) {
    if (block != nullptr)
      now_bytes.fetch_sub(static_cast<int64_t>(malloc_usable_size(block)), std::memory_order_relaxed);
    free_behind_(block);
  }

  c10::Allocator* behind_;
  static inline c10::DeleterFnPtr free_behind_ = nullptr;
};

int64_t resident_bytes() {
  long total = 0, resident = 0;
  std::FILE* statm = std::fopen("/proc/self/statm", "r");
  if (statm == nullptr) return 0;
  const int read = std::fscanf(statm, "%ld %ld", &total, &resident);
  std::fclose(statm);
  return read == 2 ? int64_t{resident} * sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace

void count_cpu_memory() {
  static CountingAllocator counting(c10::GetCPUAllocator());
  constexpr uint8_t kAboveTheDefault = 1;
  c10::SetCPUAllocator(&counting, kAboveTheDefault);
}

AllocatedMemory allocated_memory(c10::Device device) {
  AllocatedMemory memory;
  memory.resident = resident_bytes();
  if (device.is_cpu()) {
    memory.allocated = memory.reserved = now_bytes.load(std::memory_order_relaxed);
    memory.peak = peak_bytes.load(std::memory_order_relaxed);
    return memory;
  }
  constexpr size_t kBothPools = 0;  // StatType::AGGREGATE
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  memory.allocated = stats.allocated_bytes[kBothPools].current;
  memory.peak = stats.allocated_bytes[kBothPools].peak;
  memory.reserved = stats.reserved_bytes[kBothPools].current;
  return memory;
}

void reset_memory_peak(c10::Device device) {
  if (!device.is_cpu()) {
    c10::getDeviceAllocator(device.type())->resetPeakStats(device.index());
    return;
  }
  peak_bytes.store(now_bytes.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

}  // namespace taut::train
