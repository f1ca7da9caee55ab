// Work that one process of a node does for all: the first to come does it and keeps the result, a descriptor; the
// others receive a copy over an abstract Unix socket.
//
// Nothing has a name in the file system, so nothing is left behind whatever dies; if the keeper dies, what the
// descriptor stands for lives on with those who have it, and the next to ask becomes keeper.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/data/descriptor.h"

namespace taut::data {

/// Hands the descriptor out to other processes while it lives.
class Keeper {
 public:
  /// Returns when the work that `key` names is done, here by `make` or elsewhere. `make` returns a descriptor that must
  /// stay open as long as this object lives; what it throws ends the wait here, and the next process tries.
  Keeper(const std::string& key, const std::function<int()>& make);
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  /// This process did the work.
  bool is_keeper() const;
  /// The descriptor that came from elsewhere; none where is_keeper().
  Descriptor take_received();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace taut::data
