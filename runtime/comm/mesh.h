// Who is where: the (pp, dp, cp, tp) coordinates of a rank and the groups that ranks of one mesh form.
//
// Order is Megatron's "tp-cp-ep-dp-pp": tp varies fastest (its traffic is heaviest, so it stays inside a node), then
// cp, dp and pp:
//   rank = ((pp · dp_size + dp) · cp_size + cp) · tp_size + tp
// Expert layers see the same ranks with another split: the dp × cp ranks of one (pp, tp), counted by
// dc = dp · cp_size + cp, are divided into ep (fast) × edp:
//   ep = dc mod ep_size, edp = dc / ep_size
// Plain data, no communication: safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace taut::comm {

struct MeshSize {
  int pp = 1, dp = 1, cp = 1, ep = 1, tp = 1;  // ep divides dp · cp

  int world() const { return pp * dp * cp * tp; }
  int dp_cp() const { return dp * cp; }
  int edp() const { return dp * cp / ep; }
};

struct Coordinates {
  int pp = 0, dp = 0, cp = 0, ep = 0, tp = 0, edp = 0;
};

Coordinates coordinates_of(const MeshSize& size, int rank);

/// The rank at (pp, dp, cp, tp); `ep` and `edp` follow from those and are not read.
int rank_of(const MeshSize& size, const Coordinates& at);

/// What a group's members differ in.
enum class Axis {
  world,
  tp,
  cp,
  dp,     // same pp, cp, tp
  dp_cp,  // same pp, tp: all that hold the same dense parameters
  ep,     // same pp, tp, edp: together they hold one set of the experts
  edp,    // same pp, tp, ep: all that hold the same experts
  pp,
  embedding,  // the first and the last pipeline stage, which both hold the word embedding when it is tied to the head
};
inline constexpr Axis kAxes[] = {Axis::world, Axis::tp,  Axis::cp, Axis::dp,       Axis::dp_cp,
                                 Axis::ep,    Axis::edp, Axis::pp, Axis::embedding};

/// One group of the mesh. `ranks` are global and ascending; `id` is the same on every rank and unique in the mesh.
struct GroupSpec {
  Axis axis = Axis::world;
  std::string name;
  int64_t id = 0;
  std::vector<int> ranks;
};

/// The axis whose groups do the work of `axis`. Data-parallel groups that have the same members are one: dp_cp is dp
/// when cp = 1, edp is dp_cp when ep = 1. Groups of different roles stay apart even where their members are the same,
/// because the operations of one group wait for each other.
Axis served_by(const MeshSize& size, Axis axis);

/// The group of `axis` that `rank` belongs to; none where the rank is in none (embedding, on the stages between). O(its
/// members).
std::optional<GroupSpec> group_of(const MeshSize& size, Axis axis, int rank);

/// The groups that `rank` belongs to, each once: those of the axes that serve themselves, in the order of kAxes.
std::vector<GroupSpec> groups_of(const MeshSize& size, int rank);

/// Every group of the mesh, each once, in the same order on every rank: "world", then "tp<i>", "cp<i>", "dp<i>",
/// "dp_cp<i>", "ep<i>", "edp<i>", "pp<i>", "embedding<i>", where i counts the groups of one axis by their lowest rank.
/// Groups of one are included. O(world · axes).
std::vector<GroupSpec> enumerate_groups(const MeshSize& size);

}  // namespace taut::comm
