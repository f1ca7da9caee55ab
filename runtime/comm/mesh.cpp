#include "runtime/comm/mesh.h"

namespace taut::comm {

std::vector<GroupSpec> enumerate_groups(const MeshSize& size) {
  std::vector<GroupSpec> groups;
  auto add = [&](Axis axis, const char* prefix, int index, std::vector<int> ranks) {
    const std::string name = axis == Axis::world ? prefix : prefix + std::to_string(index);
    groups.push_back({axis, name, static_cast<int64_t>(groups.size()), std::move(ranks)});
  };
  // Ranks that `same` deems equal form a group; each group is listed at its lowest rank.
  auto add_axis = [&](Axis axis, const char* prefix, auto same) {
    int index = 0;
    for (int rank = 0; rank < size.world(); ++rank) {
      std::vector<int> ranks;
      for (int other = 0; other < size.world(); ++other)
        if (same(coordinates_of(size, rank), coordinates_of(size, other))) ranks.push_back(other);
      if (ranks.front() != rank) continue;
      if (axis == Axis::embedding) ranks = {ranks.front(), ranks.back()};
      add(axis, prefix, index++, std::move(ranks));
    }
  };
  std::vector<int> everyone(size.world());
  for (int rank = 0; rank < size.world(); ++rank) everyone[rank] = rank;
  add(Axis::world, "world", 0, std::move(everyone));
  using C = const Coordinates&;
  add_axis(Axis::tp, "tp", [](C a, C b) { return a.pp == b.pp && a.dp == b.dp && a.cp == b.cp; });
  add_axis(Axis::cp, "cp", [](C a, C b) { return a.pp == b.pp && a.dp == b.dp && a.tp == b.tp; });
  add_axis(Axis::dp, "dp", [](C a, C b) { return a.pp == b.pp && a.cp == b.cp && a.tp == b.tp; });
  if (size.cp > 1) add_axis(Axis::dp_cp, "dp_cp", [](C a, C b) { return a.pp == b.pp && a.tp == b.tp; });
  if (size.ep > 1) {
    const auto edp = [&](C a) { return (a.dp * size.cp + a.cp) / size.ep; };
    add_axis(Axis::ep, "ep", [&](C a, C b) { return a.pp == b.pp && a.tp == b.tp && edp(a) == edp(b); });
    add_axis(Axis::edp, "edp", [](C a, C b) { return a.pp == b.pp && a.tp == b.tp && a.ep == b.ep; });
  }
  add_axis(Axis::pp, "pp", [](C a, C b) { return a.dp == b.dp && a.cp == b.cp && a.tp == b.tp; });
  if (size.pp > 1) add_axis(Axis::embedding, "embedding", [](C a, C b) { return a.dp == b.dp && a.cp == b.cp && a.tp == b.tp; });
  return groups;
}

}  // namespace taut::comm
