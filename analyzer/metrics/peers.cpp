#include "analyzer/metrics/peers.h"

#include <algorithm>

namespace taut::metrics {

using timeline::Collective;
using timeline::Op;

PeerIndex::Key PeerIndex::key_of(int32_t rank, const Collective& c) {
  Key key{c.group_id, c.seq, -1, -1};
  if (c.op == Op::send) {
    key.sender = rank;
    key.receiver = c.peer;
  } else if (c.op == Op::recv) {
    key.sender = c.peer;
    key.receiver = rank;
  }
  return key;
}

PeerIndex::PeerIndex(const timeline::Timeline& timeline) {
  for (const timeline::Rank& rank : timeline.ranks) {
    for (const Collective& c : rank.collectives) entries_.push_back({key_of(rank.rank, c), {rank.rank, c.start}});
  }
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.key < b.key; });
}

std::optional<Issue> PeerIndex::last_other_issue(int32_t rank, const Collective& collective) const {
  const Key key = key_of(rank, collective);
  auto entry = std::lower_bound(entries_.begin(), entries_.end(), key,
                                [](const Entry& e, const Key& wanted) { return e.key < wanted; });
  std::optional<Issue> last;
  for (; entry != entries_.end() && entry->key == key; ++entry) {
    if (entry->issue.rank == rank) continue;
    if (!last || entry->issue.time > last->time) last = entry->issue;
  }
  return last;
}

std::optional<PeerIndex::PeerWait> PeerIndex::wait_for_peer(int32_t rank, const Collective& c) const {
  if (c.wait_end <= c.wait_start) return std::nullopt;
  const auto last = last_other_issue(rank, c);
  if (!last || last->time <= c.wait_start) return std::nullopt;
  if (c.op == Op::send && last->time >= c.wait_end) return std::nullopt;
  return PeerWait{c.wait_start, std::min(c.wait_end, last->time), last->rank};
}

}  // namespace taut::metrics
