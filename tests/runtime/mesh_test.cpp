#include "runtime/comm/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace taut::comm {
namespace {

using Groups = std::map<std::string, std::vector<int>>;

Groups groups_by_name(const MeshSize& size) {
  Groups groups;
  std::set<int64_t> ids;
  for (const GroupSpec& group : enumerate_groups(size)) {
    EXPECT_TRUE(ids.insert(group.id).second) << "id used twice: " << group.name;
    EXPECT_TRUE(groups.emplace(group.name, group.ranks).second) << "name used twice: " << group.name;
  }
  return groups;
}

Groups with_prefix(const Groups& groups, const std::string& prefix) {
  Groups found;
  for (const auto& [name, ranks] : groups) {
    if (name.size() > prefix.size() && name.starts_with(prefix) && std::isdigit(name[prefix.size()])) {
      found[name] = ranks;
    }
  }
  return found;
}

/// Megatron's enumeration in its general form (megatron/core/parallel_state.py, "tp-cp-ep-dp-pp"): ranks are numbers of
/// mixed radix, first digit fastest; a group of some digits is what is left when the other digits are held, groups in
/// the order of the held digits' number. Written here digit by digit, with no strides.
std::vector<std::vector<int>> megatron_groups(const std::vector<int>& radix, const std::vector<bool>& varies) {
  int world = 1;
  for (const int r : radix) world *= r;
  std::map<int, std::vector<int>> groups;
  for (int rank = 0; rank < world; ++rank) {
    int left = rank, held = 0, weight = 1;
    for (size_t digit = 0; digit < radix.size(); ++digit) {
      const int value = left % radix[digit];
      left /= radix[digit];
      if (varies[digit]) continue;
      held += value * weight;
      weight *= radix[digit];
    }
    groups[held].push_back(rank);
  }
  std::vector<std::vector<int>> list;
  for (auto& [held, ranks] : groups) list.push_back(ranks);
  return list;
}

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

TEST(Mesh, ExpertsDivideTheRanksOfDataAndContextParallelism) {
  const MeshSize size{.pp = 1, .dp = 2, .cp = 2, .ep = 2, .tp = 1};
  // rank: dp cp ep edp, by hand: dc = 2 dp + cp counts 0 1 2 3.
  const int expected[4][4] = {{0, 0, 0, 0}, {0, 1, 1, 0}, {1, 0, 0, 1}, {1, 1, 1, 1}};
  for (int rank = 0; rank < 4; ++rank) {
    const Coordinates at = coordinates_of(size, rank);
    EXPECT_EQ(at.dp, expected[rank][0]) << rank;
    EXPECT_EQ(at.cp, expected[rank][1]) << rank;
    EXPECT_EQ(at.ep, expected[rank][2]) << rank;
    EXPECT_EQ(at.edp, expected[rank][3]) << rank;
  }
}

TEST(Mesh, GroupsOfEightRanksAreThoseOfTheTable) {
  Groups groups = groups_by_name({.pp = 2, .dp = 2, .cp = 1, .ep = 1, .tp = 2});
  for (int rank = 0; rank < 8; ++rank) {  // no context or expert parallelism: everybody alone
    EXPECT_EQ(groups["cp" + std::to_string(rank)], std::vector<int>{rank});
    EXPECT_EQ(groups["ep" + std::to_string(rank)], std::vector<int>{rank});
  }
  std::erase_if(groups, [](const auto& group) { return group.second.size() == 1; });
  const Groups expected = {{"world", {0, 1, 2, 3, 4, 5, 6, 7}},
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

TEST(Mesh, GroupsOfContextAndExpertParallelismAreThoseOfTheTable) {
  // Two stages, dp 2, cp 2, ep 2, tp 2: by hand.
  const Groups groups = groups_by_name({.pp = 2, .dp = 2, .cp = 2, .ep = 2, .tp = 2});
  EXPECT_EQ(with_prefix(groups, "cp"), (Groups{{"cp0", {0, 2}},
                                               {"cp1", {1, 3}},
                                               {"cp2", {4, 6}},
                                               {"cp3", {5, 7}},
                                               {"cp4", {8, 10}},
                                               {"cp5", {9, 11}},
                                               {"cp6", {12, 14}},
                                               {"cp7", {13, 15}}}));
  EXPECT_EQ(with_prefix(groups, "dp_cp"), (Groups{{"dp_cp0", {0, 2, 4, 6}},
                                                  {"dp_cp1", {1, 3, 5, 7}},
                                                  {"dp_cp2", {8, 10, 12, 14}},
                                                  {"dp_cp3", {9, 11, 13, 15}}}));
  EXPECT_EQ(with_prefix(groups, "ep"), (Groups{{"ep0", {0, 2}},
                                               {"ep1", {1, 3}},
                                               {"ep2", {4, 6}},
                                               {"ep3", {5, 7}},
                                               {"ep4", {8, 10}},
                                               {"ep5", {9, 11}},
                                               {"ep6", {12, 14}},
                                               {"ep7", {13, 15}}}));
  EXPECT_EQ(with_prefix(groups, "edp"), (Groups{{"edp0", {0, 4}},
                                                {"edp1", {1, 5}},
                                                {"edp2", {2, 6}},
                                                {"edp3", {3, 7}},
                                                {"edp4", {8, 12}},
                                                {"edp5", {9, 13}},
                                                {"edp6", {10, 14}},
                                                {"edp7", {11, 15}}}));
}

TEST(Mesh, GroupsAreThoseOfMegatronsEnumeration) {
  for (const MeshSize& size : {MeshSize{2, 2, 2, 2, 2}, MeshSize{1, 4, 2, 8, 1}, MeshSize{3, 4, 1, 2, 2},
                               MeshSize{1, 3, 4, 6, 2}, MeshSize{4, 2, 3, 1, 1}, MeshSize{8, 4, 2, 4, 8}}) {
    const Groups groups = groups_by_name(size);
    const std::vector<int> dense = {size.tp, size.cp, size.dp, size.pp};  // digits, fastest first
    const std::vector<int> expert = {size.tp, size.ep, size.edp(), size.pp};
    const std::vector<std::tuple<Axis, std::string, std::vector<int>, std::vector<bool>>> cases = {
        {Axis::tp, "tp", dense, {true, false, false, false}},
        {Axis::cp, "cp", dense, {false, true, false, false}},
        {Axis::dp, "dp", dense, {false, false, true, false}},
        {Axis::dp_cp, "dp_cp", dense, {false, true, true, false}},
        {Axis::ep, "ep", expert, {false, true, false, false}},
        {Axis::edp, "edp", expert, {false, false, true, false}},
        {Axis::pp, "pp", dense, {false, false, false, true}},
    };
    for (const auto& [axis, prefix, radix, varies] : cases) {
      const auto expected = megatron_groups(radix, varies);
      for (size_t i = 0; i < expected.size(); ++i) {
        if (served_by(size, axis) == axis) {
          EXPECT_EQ(groups.at(prefix + std::to_string(i)), expected[i]);
        }
        for (const int rank : expected[i]) EXPECT_EQ(group_of(size, axis, rank)->ranks, expected[i]);
      }
    }
  }
}

TEST(Mesh, DataParallelGroupsWithTheSameMembersAreOne) {
  const auto name = [](const MeshSize& size, Axis axis) { return group_of(size, axis, 0)->name; };
  EXPECT_EQ(name({1, 4, 1, 1, 1}, Axis::dp_cp), "dp0");
  EXPECT_EQ(name({1, 4, 1, 1, 1}, Axis::edp), "dp0");
  EXPECT_EQ(name({1, 4, 2, 1, 1}, Axis::edp), "dp_cp0");
  EXPECT_EQ(name({1, 4, 2, 2, 1}, Axis::edp), "edp0");
  // Other roles keep their own, or attention's ring would wait for the gradients.
  EXPECT_EQ(name({1, 1, 2, 1, 1}, Axis::dp_cp), "dp_cp0");
  EXPECT_EQ(name({1, 1, 2, 2, 1}, Axis::ep), "ep0");
}

TEST(Mesh, ARankFindsItsGroupsWithoutTheOthers) {
  const MeshSize size{.pp = 3, .dp = 2, .cp = 2, .ep = 4, .tp = 2};
  std::map<int, std::vector<std::pair<int64_t, std::string>>> expected;
  for (const GroupSpec& group : enumerate_groups(size)) {
    for (const int rank : group.ranks) expected[rank].emplace_back(group.id, group.name);
  }
  for (int rank = 0; rank < size.world(); ++rank) {
    std::vector<std::pair<int64_t, std::string>> mine;
    for (const GroupSpec& group : groups_of(size, rank)) mine.emplace_back(group.id, group.name);
    EXPECT_EQ(mine, expected[rank]) << rank;
  }
  EXPECT_FALSE(group_of(size, Axis::embedding, 8)) << "a stage between the first and the last";
  EXPECT_FALSE(group_of({1, 2, 1, 1, 2}, Axis::embedding, 0)) << "no pipeline";
}

}  // namespace
}  // namespace taut::comm
