// A file descriptor with an owner.
#pragma once

#include <unistd.h>

#include <utility>

namespace taut::data {

/// Closes its descriptor at the end; -1 = none.
struct Descriptor {
  explicit Descriptor(int number = -1) : fd(number) {}
  Descriptor(Descriptor&& other) noexcept : fd(std::exchange(other.fd, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd, other.fd);
    return *this;
  }
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  /// Gives the descriptor to the caller.
  int release() { return std::exchange(fd, -1); }
  int fd;
};

}  // namespace taut::data
