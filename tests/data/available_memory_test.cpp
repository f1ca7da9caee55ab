#include "runtime/data/available_memory.h"

#include <limits>

#include "tests/data/fixture.h"

namespace taut::data {
namespace {

constexpr uint64_t kMiB = 1 << 20;

TEST(AvailableMemory, IsWhatTheKernelSays) {
  const Folder root;
  EXPECT_EQ(available_memory(root.path()), std::numeric_limits<uint64_t>::max());
  root.write("proc/meminfo", "MemTotal:    16777216 kB\nMemFree:  5 kB\nMemAvailable:   8192 kB\nBuffers: 1 kB\n");
  EXPECT_EQ(available_memory(root.path()), 8 * kMiB);
}

TEST(AvailableMemory, HeedsTheContainersLimit) {
  const Folder root;
  root.write("proc/meminfo", "MemAvailable:   8192000 kB\n");
  root.write("proc/self/cgroup", "0::/job/step\n");
  root.write("sys/fs/cgroup/job/step/memory.max", "max\n");
  root.write("sys/fs/cgroup/job/step/memory.current", "5\n");
  EXPECT_EQ(available_memory(root.path()), 8000 * kMiB);
  root.write("sys/fs/cgroup/job/memory.max", std::to_string(100 * kMiB));
  root.write("sys/fs/cgroup/job/memory.current", std::to_string(90 * kMiB));
  root.write("sys/fs/cgroup/job/memory.stat", "anon 7\ninactive_file " + std::to_string(40 * kMiB) + "\n");
  EXPECT_EQ(available_memory(root.path()), 50 * kMiB);  // the page cache can go
  root.write("sys/fs/cgroup/job/memory.stat", "");
  root.write("sys/fs/cgroup/job/memory.current", std::to_string(101 * kMiB));
  EXPECT_EQ(available_memory(root.path()), 0u);
}

TEST(AvailableMemory, HeedsTheOlderGroupsToo) {
  const Folder root;
  root.write("proc/meminfo", "MemAvailable:   8192000 kB\n");
  root.write("proc/self/cgroup", "9:name=systemd:/\n4:memory:/box\n0::/\n");
  root.write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", std::to_string(64 * kMiB));
  root.write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", std::to_string(4 * kMiB));
  EXPECT_EQ(available_memory(root.path()), 60 * kMiB);
}

TEST(AvailableMemory, KnowsThisMachine) {
  EXPECT_GT(available_memory(), kMiB);
  EXPECT_LT(available_memory(), uint64_t{1} << 50);
  EXPECT_EQ(mebibytes(3 * kMiB / 2), "1.5 MiB");
}

}  // namespace
}  // namespace taut::data
