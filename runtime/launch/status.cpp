#include "runtime/launch/status.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "taut.h"

namespace taut::launch {
namespace {

int64_t* map(int fd, size_t ranks, const std::string& path) {
  void* memory = mmap(nullptr, ranks * sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int error = errno;
  close(fd);
  if (memory == MAP_FAILED)
    throw Error("cannot map the status file " + path + ": " + std::strerror(error), "is its disk full?");
  return static_cast<int64_t*>(memory);
}

}  // namespace

StatusFile StatusFile::create(const std::string& path, int ranks) {
  if (ranks < 1) throw Error("a status file needs at least one rank");
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0)
    throw Error("cannot write the status file " + path + ": " + std::strerror(errno), "check the folder's permissions");
  const size_t size = static_cast<size_t>(ranks);
  // Blocks are allocated here: a store into a hole on a full disk would kill the process with SIGBUS.
  if (const int error = posix_fallocate(fd, 0, static_cast<off_t>(size * sizeof(int64_t))); error != 0) {
    close(fd);
    throw Error("cannot write the status file " + path + ": " + std::strerror(error), "free some disk space");
  }
  StatusFile file(map(fd, size, path), size);
  for (int rank = 0; rank < ranks; ++rank) file.set(rank, -1);
  return file;
}

StatusFile StatusFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) throw Error("cannot open the status file " + path + ": " + std::strerror(errno));
  struct stat info {};
  if (fstat(fd, &info) != 0 || info.st_size < static_cast<off_t>(sizeof(int64_t))) {
    close(fd);
    throw Error("the status file " + path + " is empty");
  }
  const size_t size = static_cast<size_t>(info.st_size) / sizeof(int64_t);
  return StatusFile(map(fd, size, path), size);
}

StatusFile::StatusFile(StatusFile&& other) noexcept
    : steps_(std::exchange(other.steps_, nullptr)), size_(std::exchange(other.size_, 0)) {}

StatusFile& StatusFile::operator=(StatusFile&& other) noexcept {
  std::swap(steps_, other.steps_);
  std::swap(size_, other.size_);
  return *this;
}

StatusFile::~StatusFile() {
  if (steps_ != nullptr) munmap(steps_, size_ * sizeof(int64_t));
}

void StatusFile::set(int rank, int64_t step) {
  if (rank < 0 || rank >= ranks()) return;
  std::atomic_ref(steps_[rank]).store(step, std::memory_order_relaxed);
}

int64_t StatusFile::get(int rank) const {
  if (rank < 0 || rank >= ranks()) return -1;
  return std::atomic_ref(steps_[rank]).load(std::memory_order_relaxed);
}

}  // namespace taut::launch
