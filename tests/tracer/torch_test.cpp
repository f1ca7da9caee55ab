// LibTorch's operators arrive as NVTX ranges of domain "PyTorch", forward and backward.
#include <gtest/gtest.h>

#include "tests/tracer/traced_run.h"

namespace taut::collect {
namespace {

TEST(TorchObserver, OperatorsOfBothDirectionsAreRanges) {
  const auto run = test::trace({{}}, {}, true, "tracer_torch_speaker");
  ASSERT_EQ(run->status, 0);
  const auto rows = test::nvtx_rows(store::Reader(run->path));
  const auto forward = test::named(rows, "aten::sum"), backward = test::named(rows, "MmBackward0");
  ASSERT_FALSE(forward.empty());
  ASSERT_EQ(backward.size(), 1u);
  // The product runs once forward and, inside the backward node, once backward.
  const auto products = test::named(rows, "aten::mm");
  ASSERT_EQ(products.size(), 2u);
  int inside = 0;
  for (const test::NvtxRow& product : products) {
    EXPECT_EQ(product.domain, "PyTorch");
    EXPECT_TRUE(product.has_end);
    inside += product.start >= backward[0].start && product.end <= backward[0].end && product.tid == backward[0].tid;
  }
  EXPECT_EQ(inside, 1);
  for (const test::NvtxRow& row : rows) {
    EXPECT_FALSE(row.name.starts_with("autograd::engine")) << row.name;
    EXPECT_NE(row.name, "aten::as_strided");
    EXPECT_NE(row.name, "aten::empty");
    EXPECT_TRUE(row.has_end || row.type == 75) << row.name;
  }
}

}  // namespace
}  // namespace taut::collect
