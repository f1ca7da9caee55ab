#include "runtime/comm/mesh.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace taut::comm {
namespace {

TEST(Mesh, TensorParallelVariesFastestAndPipelineSlowest) {
  const MeshSize size{.pp = 2, .dp = 2, .cp = 1, .ep = 1, .tp = 2};
  EXPECT_EQ(size.world(), 8);
  // Megatron's order, written out.
  const int expected[8][3] = {{0, 0, 0}, {0, 0, 1}, {0, 1, 0}, {0, 1, 1}, {1, 0, 0}, {1, 0, 1}, {1, 1, 0}, {1, 1, 1}};
  for (int rank = 0; rank < 8; ++rank) {
    const Coordinates at = coordinates_of(size, rank);
    EXPECT_EQ(at.pp, expected[rank][0]) << rank;
    EXPECT_EQ(at.dp, expected[rank][1]) << rank;
    EXPECT_EQ(at.tp, expected[rank][2]) << rank;
    EXPECT_EQ(rank_of(size, at), rank);
  }
}

TEST(Mesh, GroupsOfEightRanksAreThoseOfTheTable) {
  std::map<std::string, std::vector<int>> groups;
  std::set<int64_t> ids;
  for (const GroupSpec& group : enumerate_groups({.pp = 2, .dp = 2, .cp = 1, .ep = 1, .tp = 2})) {
    EXPECT_TRUE(ids.insert(group.id).second) << "id used twice: " << group.name;
    groups[group.name] = group.ranks;
  }
  const std::map<std::string, std::vector<int>> expected = {{"world", {0, 1, 2, 3, 4, 5, 6, 7}},
                                                            {"tp0", {0, 1}},
                                                            {"tp1", {2, 3}},
                                                            {"tp2", {4, 5}},
                                                            {"tp3", {6, 7}},
                                                            {"dp0", {0, 2}},
                                                            {"dp1", {1, 3}},
                                                            {"dp2", {4, 6}},
                                                            {"dp3", {5, 7}},
                                                            {"pp0", {0, 4}},
                                                            {"pp1", {1, 5}},
                                                            {"pp2", {2, 6}},
                                                            {"pp3", {3, 7}},
                                                            {"embedding0", {0, 4}},
                                                            {"embedding1", {1, 5}},
                                                            {"embedding2", {2, 6}},
                                                            {"embedding3", {3, 7}}};
  EXPECT_EQ(groups, expected);
}

TEST(Mesh, EveryRankIsInExactlyOneGroupOfEachAxis) {
  for (const MeshSize& size : {MeshSize{4, 3, 1, 1, 2}, MeshSize{1, 5, 1, 1, 1}, MeshSize{2, 1, 2, 1, 4}}) {
    std::map<Axis, std::vector<int>> members;
    for (const GroupSpec& group : enumerate_groups(size)) {
      auto& all = members[group.axis];
      all.insert(all.end(), group.ranks.begin(), group.ranks.end());
    }
    for (const Axis axis : {Axis::world, Axis::tp, Axis::dp, Axis::pp}) {
      std::vector<int>& all = members[axis];
      std::sort(all.begin(), all.end());
      ASSERT_EQ(static_cast<int>(all.size()), size.world());
      for (int rank = 0; rank < size.world(); ++rank) EXPECT_EQ(all[rank], rank);
    }
  }
}

}  // namespace
}  // namespace taut::comm
