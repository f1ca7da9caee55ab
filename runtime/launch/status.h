// The status file: the training step each rank is at, shared between the ranks and the launcher.
//
// An array of int64, one per rank, -1 before the first step, mapped by every process (environment: TAUT_STATUS_FILE).
// Setting is one store, so a rank killed at any moment leaves the step it was at. LibTorch-free.
// Thread safety: set and get are atomic per rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace taut::launch {

inline constexpr const char* kStatusFileVariable = "TAUT_STATUS_FILE";

class StatusFile {
 public:
  /// Makes (or empties) the file for `ranks` ranks, all at -1. Throws taut::Error.
  static StatusFile create(const std::string& path, int ranks);

  /// Maps an existing file. Throws taut::Error when it is absent or empty.
  static StatusFile open(const std::string& path);

  StatusFile(StatusFile&& other) noexcept;
  StatusFile& operator=(StatusFile&& other) noexcept;
  ~StatusFile();

  int ranks() const { return static_cast<int>(size_); }
  /// Out-of-range ranks are ignored by set and read as -1.
  void set(int rank, int64_t step);
  int64_t get(int rank) const;

 private:
  StatusFile(int64_t* steps, size_t size) : steps_(steps), size_(size) {}
  int64_t* steps_ = nullptr;
  size_t size_ = 0;
};

}  // namespace taut::launch
