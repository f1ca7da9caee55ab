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

StatusFile::StatusFile(int fd, size_t size, std::string path) : path_(std::move(path)), fd_(fd), size_(size) {
  void* memory = mmap(nullptr, size * sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    close(fd);
    throw Error("cannot map the status file " + path_ + ": " + std::strerror(error), "is the machine out of memory?");
  }
  steps_ = static_cast<int64_t*>(memory);
}

StatusFile StatusFile::create(int ranks) {
  if (ranks < 1) throw Error("a status file needs at least one rank");
  const int fd = memfd_create("taut-status", MFD_CLOEXEC);
  if (fd < 0) throw Error(std::string("cannot make the status file: ") + std::strerror(errno), "raise ulimit -n");
  const auto size = static_cast<size_t>(ranks);
  if (ftruncate(fd, static_cast<off_t>(size * sizeof(int64_t))) != 0) {
    const int error = errno;
    close(fd);
    throw Error(std::string("cannot make the status file: ") + std::strerror(error), "is the machine out of memory?");
  }
  StatusFile file(fd, size, "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd));
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
  return StatusFile(fd, static_cast<size_t>(info.st_size) / sizeof(int64_t), path);
}

StatusFile::StatusFile(StatusFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      steps_(std::exchange(other.steps_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

StatusFile& StatusFile::operator=(StatusFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(steps_, other.steps_);
  std::swap(size_, other.size_);
  return *this;
}

StatusFile::~StatusFile() {
  if (steps_ != nullptr) munmap(steps_, size_ * sizeof(int64_t));
  if (fd_ >= 0) close(fd_);
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
