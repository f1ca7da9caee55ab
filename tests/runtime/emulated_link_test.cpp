#include "runtime/comm/emulated_link.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace taut::comm {
namespace {

using annotate::CollectiveOp;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

TEST(EmulatedLink, CountsTheBytesOfARing) {
  EXPECT_DOUBLE_EQ(wire_bytes(CollectiveOp::all_reduce, 4, 1000), 1500);  // 2(n−1)/n
  EXPECT_DOUBLE_EQ(wire_bytes(CollectiveOp::all_gather, 4, 1000), 750);   // (n−1)/n
  EXPECT_DOUBLE_EQ(wire_bytes(CollectiveOp::reduce_scatter, 2, 1000), 500);
  EXPECT_DOUBLE_EQ(wire_bytes(CollectiveOp::send, 2, 1000), 1000);
  EXPECT_DOUBLE_EQ(wire_bytes(CollectiveOp::recv, 2, 1000), 0);
  EXPECT_DOUBLE_EQ(wire_bytes(CollectiveOp::all_reduce, 1, 1000), 0);
}

TEST(EmulatedLink, TakesLatencyPlusBytesOverBandwidth) {
  const EmulatedLink link({.gbit_per_s = 8, .latency_us = 100});  // 1 GB/s
  EXPECT_NEAR(link.transfer_seconds(5e6), 0.0051, 1e-12);
}

TEST(EmulatedLink, SwitchedOffItIssuesBeforeReturning) {
  EmulatedLink link({.gbit_per_s = 0, .latency_us = 0});
  EXPECT_FALSE(link.enabled());
  bool issued = false;
  link.submit(1e12, [&] { issued = true; });
  EXPECT_TRUE(issued);
}

TEST(EmulatedLink, TransfersOfOneRankQueueOneAfterAnother) {
  std::vector<double> issued;
  const double start = now_seconds();
  {
    EmulatedLink link({.gbit_per_s = 8, .latency_us = 0});
    for (int i = 0; i < 3; ++i) link.submit(20e6, [&] { issued.push_back(now_seconds()); });  // 20 ms each
    EXPECT_LT(now_seconds() - start, 0.02) << "submitting must not wait";
  }  // the end waits for all
  ASSERT_EQ(issued.size(), 3u);
  // Waiting may take longer on a busy machine, never shorter.
  for (int i = 0; i < 3; ++i) EXPECT_GE(issued[i] - start, 0.02 * (i + 1) - 1e-4);
}

}  // namespace
}  // namespace taut::comm
