// The status file: the training step each rank is at, shared between the ranks and the launcher.
//
// An array of int64, one per rank, -1 before the first step, mapped by every process (environment: TAUT_STATUS_FILE).
// Setting is one store, so a rank killed at any moment leaves the step it was at. The file is memory that no folder
// names: nothing of it stays behind, however launcher and ranks end. LibTorch-free.
// Thread safety: set and get are atomic per rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace taut::launch {

inline constexpr const char* kStatusFileVariable = "TAUT_STATUS_FILE";

class StatusFile {
 public:
  /// Makes one for `ranks` ranks, all at -1. Throws taut::Error.
  static StatusFile create(int ranks);

  /// Maps an existing one. Throws taut::Error when it is absent or empty.
  static StatusFile open(const std::string& path);

  StatusFile(StatusFile&& other) noexcept;
  StatusFile& operator=(StatusFile&& other) noexcept;
  ~StatusFile();

  /// Where this user's other processes can open it, for as long as the object that made it lives.
  const std::string& path() const { return path_; }
  int ranks() const { return static_cast<int>(size_); }
  /// Out-of-range ranks are ignored by set and read as -1.
  void set(int rank, int64_t step);
  int64_t get(int rank) const;

 private:
  /// Takes over `fd`, even when it throws.
  StatusFile(int fd, size_t size, std::string path);
  std::string path_;
  int fd_ = -1;
  int64_t* steps_ = nullptr;
  size_t size_ = 0;
};

}  // namespace taut::launch
