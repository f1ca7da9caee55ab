// Anonymous memory that processes share by passing its descriptor on: nothing appears in /dev/shm, and the kernel frees
// it with its last user, however that ends.
#pragma once

#include <cstddef>
#include <string>

namespace taut::data {

/// A memfd and its mapping. Owns both.
class SharedMemory {
 public:
  enum class Access { read_only, read_write };

  /// New zeroed memory of `bytes` (≥ 1) with its pages reserved, so that writing to it cannot fail later. `purpose`
  /// names it in errors ("the loader's ring of 8 batches"). Throws taut::Error with the size when there is no room.
  SharedMemory(size_t bytes, const std::string& purpose);

  /// Maps all of a descriptor received from another process. Takes ownership of `fd`.
  SharedMemory(int fd, Access access);

  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  char* data() { return data_; }
  const char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  /// Stays open, and owned by this object.
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace taut::data
