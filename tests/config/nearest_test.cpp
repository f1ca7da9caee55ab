#include "runtime/config/nearest.h"

#include <gtest/gtest.h>

namespace taut::config {
namespace {

TEST(EditDistance, MatchesHandCounts) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("saturday", "sunday"), 3);
  EXPECT_EQ(edit_distance("ca", "ac"), 1);   // neighbours swapped
  EXPECT_EQ(edit_distance("ca", "abc"), 3);  // optimal string alignment, not the unrestricted distance
}

TEST(Nearest, FindsTheTypo) {
  const std::vector<std::string> names{"train", "trace", "info", "stats"};
  EXPECT_EQ(nearest("trian", names), "train");
  EXPECT_EQ(nearest("Trace", names), "trace");
  EXPECT_EQ(nearest("inof", names), "info");
  EXPECT_EQ(nearest("statistics", names), std::nullopt);
  EXPECT_EQ(nearest("stats_of_run", names), "stats");
}

TEST(Nearest, IsSilentWhenNothingIsNear) {
  const std::vector<std::string> names{"train", "info"};
  EXPECT_EQ(nearest("zebra", names), std::nullopt);
  EXPECT_EQ(nearest(std::string(1'000'000, 'x'), names), std::nullopt);
  EXPECT_EQ(nearest("train", {}), std::nullopt);
}

}  // namespace
}  // namespace taut::config
