// Where ranks run on machines with one and with several NUMA nodes.
#include "runtime/launch/placement.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>

namespace taut::launch {
namespace {

namespace fs = std::filesystem;

class Placing : public testing::Test {
 protected:
  Placing() { fs::create_directories(folder_); }
  ~Placing() override { fs::remove_all(folder_); }
  void node(int number, const std::string& cpus) {
    const fs::path own = folder_ / ("node" + std::to_string(number));
    fs::create_directories(own);
    std::ofstream(own / "cpulist") << cpus << "\n";
  }
  Placement place(int cpus, int rank, int ranks) const {
    std::vector<int> allowed(cpus);
    std::iota(allowed.begin(), allowed.end(), 0);
    return place_rank(folder_, allowed, rank, ranks);
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / ("nodes-" + std::to_string(getpid()));
};

using Cpus = std::vector<int>;

TEST_F(Placing, OneNodeIsSharedUnbound) {
  node(0, "0-7");
  EXPECT_EQ(place(8, 0, 2).cpus, Cpus{});
  EXPECT_EQ(place(8, 1, 2).threads, 4);
  EXPECT_EQ(place(2, 7, 8).threads, 1);
  EXPECT_EQ(place_rank(folder_ / "none", {0, 1, 2}, 0, 1).threads, 3);
}

TEST_F(Placing, NeighbouringRanksShareANode) {
  node(0, "0-3,8-11");
  node(1, "4-7,12-15");
  fs::create_directories(folder_ / "nodes_are_not_all_nodes");
  const Cpus first{0, 1, 2, 3, 8, 9, 10, 11}, second{4, 5, 6, 7, 12, 13, 14, 15};
  for (int rank = 0; rank < 4; ++rank) {
    const Placement placement = place(16, rank, 4);
    EXPECT_EQ(placement.cpus, rank < 2 ? first : second) << rank;
    EXPECT_EQ(placement.threads, 4) << rank;
  }
  // Three ranks: two on the first node, one on the second.
  EXPECT_EQ(place(16, 1, 3).threads, 4);
  EXPECT_EQ(place(16, 2, 3).cpus, second);
  EXPECT_EQ(place(16, 2, 3).threads, 8);
}

TEST_F(Placing, ARankHasSeveralNodesWhenThereAreFewRanks) {
  for (int number = 0; number < 4; ++number)
    node(number, std::to_string(2 * number) + "-" + std::to_string(2 * number + 1));
  EXPECT_EQ(place(8, 0, 1).threads, 8);
  EXPECT_EQ(place(8, 1, 2).cpus, (Cpus{4, 5, 6, 7}));
  EXPECT_EQ(place(8, 1, 2).threads, 4);
}

TEST_F(Placing, OnlyAllowedProcessorsCount) {
  node(0, "0-3");
  node(1, "4-7");
  EXPECT_EQ(place(4, 1, 2).cpus, Cpus{});  // node 1 is out of reach
  EXPECT_EQ(place(4, 1, 2).threads, 2);
  EXPECT_EQ(place(6, 1, 2).cpus, (Cpus{4, 5}));
}

TEST_F(Placing, ADamagedListIsNoNode) {
  node(0, "0-3");
  node(1, "4-99999999");
  EXPECT_EQ(place(8, 0, 2).cpus, Cpus{});
  EXPECT_EQ(place(8, 0, 2).threads, 4);
}

}  // namespace
}  // namespace taut::launch
