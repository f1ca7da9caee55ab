#include "runtime/comm/mesh.h"

namespace taut::comm {

std::vector<GroupSpec> enumerate_groups(const MeshSize& size) {
  std::vector<GroupSpec> groups;
  auto add = [&](Axis axis, const char* prefix, int index, std::vector<int> ranks) {
    const std::string name = axis == Axis::world ? prefix : prefix + std::to_string(index);
    groups.push_back({axis, name, static_cast<int64_t>(groups.size()), std::move(ranks)});
  };
  auto add_axis = [&](Axis axis, const char* prefix, int Coordinates::*coordinate, int length) {
    int index = 0;
    for (int rank = 0; rank < size.world(); ++rank) {
      Coordinates at = coordinates_of(size, rank);
      if (at.*coordinate != 0) continue;  // each group is listed once, at its first member
      std::vector<int> ranks;
      for (at.*coordinate = 0; at.*coordinate < length; ++(at.*coordinate)) ranks.push_back(rank_of(size, at));
      if (axis == Axis::embedding) ranks = {ranks.front(), ranks.back()};
      add(axis, prefix, index++, std::move(ranks));
    }
  };
  std::vector<int> everyone(size.world());
  for (int rank = 0; rank < size.world(); ++rank) everyone[rank] = rank;
  add(Axis::world, "world", 0, std::move(everyone));
  add_axis(Axis::tp, "tp", &Coordinates::tp, size.tp);
  add_axis(Axis::dp, "dp", &Coordinates::dp, size.dp);
  add_axis(Axis::pp, "pp", &Coordinates::pp, size.pp);
  if (size.pp > 1) add_axis(Axis::embedding, "embedding", &Coordinates::pp, size.pp);
  return groups;
}

}  // namespace taut::comm
