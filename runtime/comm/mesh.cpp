#include "runtime/comm/mesh.h"

namespace taut::comm {
namespace {

/// Members of a group are `first + i · stride`, i < length; where such a group starts, `stride` of them interleave.
struct Extent {
  const char* name;
  int stride, length;
};

Extent extent_of(const MeshSize& size, Axis axis) {
  const int stage = size.tp * size.cp * size.dp;
  switch (axis) {
    case Axis::world:
      return {"world", 1, size.world()};
    case Axis::tp:
      return {"tp", 1, size.tp};
    case Axis::cp:
      return {"cp", size.tp, size.cp};
    case Axis::dp:
      return {"dp", size.tp * size.cp, size.dp};
    case Axis::dp_cp:
      return {"dp_cp", size.tp, size.dp_cp()};
    case Axis::ep:
      return {"ep", size.tp, size.ep};
    case Axis::edp:
      return {"edp", size.tp * size.ep, size.edp()};
    case Axis::pp:
      return {"pp", stage, size.pp};
    case Axis::embedding:
      return {"embedding", stage, size.pp};
  }
  return {};
}

bool exists(const MeshSize& size, Axis axis) {
  return served_by(size, axis) == axis && (axis != Axis::embedding || size.pp > 1);
}

/// The id of the axis' first group: ids count groups through the axes.
int64_t first_id(const MeshSize& size, Axis axis) {
  int64_t id = 0;
  for (const Axis before : kAxes) {
    if (before == axis) break;
    if (exists(size, before)) id += size.world() / extent_of(size, before).length;
  }
  return id;
}

}  // namespace

Coordinates coordinates_of(const MeshSize& size, int rank) {
  Coordinates at;
  at.tp = rank % size.tp;
  at.cp = rank / size.tp % size.cp;
  at.dp = rank / (size.tp * size.cp) % size.dp;
  at.pp = rank / (size.tp * size.cp * size.dp);
  const int dc = at.dp * size.cp + at.cp;
  at.ep = dc % size.ep;
  at.edp = dc / size.ep;
  return at;
}

int rank_of(const MeshSize& size, const Coordinates& at) {
  return ((at.pp * size.dp + at.dp) * size.cp + at.cp) * size.tp + at.tp;
}

Axis served_by(const MeshSize& size, Axis axis) {
  if (axis == Axis::edp && size.ep == 1) axis = Axis::dp_cp;
  if (axis == Axis::dp_cp && size.cp == 1) axis = Axis::dp;
  return axis;
}

std::optional<GroupSpec> group_of(const MeshSize& size, Axis axis, int rank) {
  axis = served_by(size, axis);
  if (!exists(size, axis)) return std::nullopt;
  const auto [prefix, stride, length] = extent_of(size, axis);
  const int member = rank / stride % length, first = rank - member * stride;
  if (axis == Axis::embedding && member != 0 && member != length - 1) return std::nullopt;
  const int index = first / (stride * length) * stride + first % stride;
  GroupSpec group{axis, prefix, first_id(size, axis) + index, {}};
  if (axis != Axis::world) group.name += std::to_string(index);
  for (int i = 0; i < length; i += axis == Axis::embedding ? length - 1 : 1) group.ranks.push_back(first + i * stride);
  return group;
}

std::vector<GroupSpec> groups_of(const MeshSize& size, int rank) {
  std::vector<GroupSpec> groups;
  for (const Axis axis : kAxes) {
    if (!exists(size, axis)) continue;
    if (auto group = group_of(size, axis, rank)) groups.push_back(std::move(*group));
  }
  return groups;
}

std::vector<GroupSpec> enumerate_groups(const MeshSize& size) {
  std::vector<GroupSpec> groups;
  for (const Axis axis : kAxes) {
    if (!exists(size, axis)) continue;
    const auto [prefix, stride, length] = extent_of(size, axis);
    for (int rank = 0; rank < size.world(); ++rank) {
      if (rank / stride % length != 0) continue;  // each group is listed once, at its first member
      groups.push_back(*group_of(size, axis, rank));
    }
  }
  return groups;
}

}  // namespace taut::comm
