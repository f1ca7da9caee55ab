// Who a rank waits for: the members of every collective and the two ends of every message, and when each was issued.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "analyzer/timeline/timeline.h"

namespace taut::metrics {

struct Issue {
  int32_t rank = 0;
  int64_t time = 0;
};

class PeerIndex {
 public:
  explicit PeerIndex(const timeline::Timeline& timeline);

  /// The other member that issued `collective` last (for a recv the sender, for a send the receiver); empty when the
  /// trace holds no other member. O(log n + members).
  std::optional<Issue> last_other_issue(int32_t rank, const timeline::Collective& collective) const;

  /// The part [first, second) of the rank's wait in which a peer had not issued yet; empty where it had. A send that
  /// was done before its recv was issued did not wait for it.
  struct PeerWait {
    int64_t start = 0, end = 0;
    int32_t peer = -1;
  };
  std::optional<PeerWait> wait_for_peer(int32_t rank, const timeline::Collective& collective) const;

 private:
  struct Key {
    int64_t group_id, seq;
    int32_t sender, receiver;  // -1 for collectives
    auto operator<=>(const Key&) const = default;
  };
  struct Entry {
    Key key;
    Issue issue;
  };
  static Key key_of(int32_t rank, const timeline::Collective& collective);

  std::vector<Entry> entries_;  // sorted by key
};

}  // namespace taut::metrics
