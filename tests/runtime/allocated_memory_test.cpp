// The counting allocator: sizes known beforehand, counted and given back.
#include "runtime/train/allocated_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

namespace taut::train {
namespace {

constexpr int64_t kMegabyte = 1 << 20;
constexpr int64_t kRounding = 1 << 13;  // malloc may hand out up to a page more than was asked

class AllocatedMemoryTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { count_cpu_memory(); }
};

TEST_F(AllocatedMemoryTest, CountsTensorsNowAndAtMost) {
  const int64_t before = allocated_memory(at::kCPU).allocated;
  reset_memory_peak(at::kCPU);
  {
    const at::Tensor kept = at::empty({kMegabyte}, at::kByte);
    { const at::Tensor brief = at::empty({2 * kMegabyte}, at::kByte); }
    const at::Tensor view = kept.narrow(0, 0, 10);  // no memory of its own
    const AllocatedMemory memory = allocated_memory(at::kCPU);
    EXPECT_NEAR(static_cast<double>(memory.allocated - before), kMegabyte, kRounding);
    EXPECT_NEAR(static_cast<double>(memory.peak - before), 3 * kMegabyte, kRounding);
    EXPECT_GT(memory.resident, 10 * kMegabyte);
  }
  EXPECT_EQ(allocated_memory(at::kCPU).allocated, before);
  reset_memory_peak(at::kCPU);
  EXPECT_EQ(allocated_memory(at::kCPU).peak, before);
}

TEST_F(AllocatedMemoryTest, CountsWhatAnotherThreadFrees) {
  const int64_t before = allocated_memory(at::kCPU).allocated;
  at::Tensor tensor = at::empty({kMegabyte}, at::kByte);
  std::thread([held = std::move(tensor)] {}).join();
  EXPECT_EQ(allocated_memory(at::kCPU).allocated, before);
}

TEST_F(AllocatedMemoryTest, ResizedAndEmptyTensorsComeOutEven) {
  const int64_t before = allocated_memory(at::kCPU).allocated;
  {
    at::Tensor tensor = at::empty({0}, at::kFloat);
    tensor.resize_({kMegabyte / 4});
    tensor.resize_({kMegabyte});
    EXPECT_NEAR(static_cast<double>(allocated_memory(at::kCPU).allocated - before), 4 * kMegabyte, kRounding);
  }
  EXPECT_EQ(allocated_memory(at::kCPU).allocated, before);
}

}  // namespace
}  // namespace taut::train
