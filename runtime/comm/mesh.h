// Who is where: the (pp, dp, cp, ep, tp) coordinates of a rank and the groups that ranks of one mesh form.
//
// Order is Megatron's: tp varies fastest (its traffic is heaviest, so it stays inside a node), then cp, dp and pp:
//   rank = ((pp · dp_size + dp) · cp_size + cp) · tp_size + tp
// Expert parallelism divides the data-parallel ranks: ep = dp mod ep_size.
// Plain data, no communication: safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace taut::comm {

struct MeshSize {
  int pp = 1, dp = 1, cp = 1, ep = 1, tp = 1;

  int world() const { return pp * dp * cp * tp; }
};

struct Coordinates {
  int pp = 0, dp = 0, cp = 0, ep = 0, tp = 0;
};

inline Coordinates coordinates_of(const MeshSize& size, int rank) {
  Coordinates at;
  at.tp = rank % size.tp;
  at.cp = rank / size.tp % size.cp;
  at.dp = rank / (size.tp * size.cp) % size.dp;
  at.pp = rank / (size.tp * size.cp * size.dp);
  at.ep = (at.dp * size.cp + at.cp) % size.ep;
  return at;
}

inline int rank_of(const MeshSize& size, const Coordinates& at) {
  return ((at.pp * size.dp + at.dp) * size.cp + at.cp) * size.tp + at.tp;
}

/// What a group's members differ in. `embedding` joins the first and the last pipeline stage, which both hold the word
/// embedding when it is tied to the head.
enum class Axis { world, tp, cp, dp, dp_cp, ep, edp, pp, embedding };

/// One group of the mesh. `ranks` are global, ascending along the axis; `id` is the same on every rank and unique.
struct GroupSpec {
  Axis axis = Axis::world;
  std::string name;
  int64_t id = 0;
  std::vector<int> ranks;
};

/// Every group of the mesh in the same order on every rank: "world", then "tp<i>", "dp<i>", "pp<i>", "embedding<i>",
/// where i counts the groups of one axis by their lowest rank. O(world) groups and entries.
std::vector<GroupSpec> enumerate_groups(const MeshSize& size);

}  // namespace taut::comm
