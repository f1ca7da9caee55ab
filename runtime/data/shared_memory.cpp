#include "runtime/data/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/data/available_memory.h"
#include "taut.h"

namespace taut::data {
namespace {

[[noreturn]] void throw_no_room(const std::string& purpose, size_t bytes, const std::string& why) {
  throw Error("not enough memory for " + purpose + ": " + mebibytes(bytes) + " needed, " + why,
              "free memory on this machine, or lower data.num_workers, data.prefetch_factor or "
              "train_micro_batch_size_per_gpu, or set data.preload to false");
}

}  // namespace

SharedMemory::SharedMemory(size_t bytes, const std::string& purpose) : bytes_(bytes) {
  // Without this check a reservation that is too large would bring in the OOM killer instead of an error.
  const uint64_t available = available_memory();
  if (bytes > available) throw_no_room(purpose, bytes, mebibytes(available) + " available");
  fd_ = memfd_create("taut", MFD_CLOEXEC);
  if (fd_ < 0) throw_no_room(purpose, bytes, std::strerror(errno));
  int failure = ftruncate(fd_, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  if (failure == 0) failure = posix_fallocate(fd_, 0, static_cast<off_t>(bytes));
  void* address = MAP_FAILED;
  if (failure == 0) {
    address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (address == MAP_FAILED) failure = errno;
  }
  if (failure != 0) {
    close(fd_);
    throw_no_room(purpose, bytes, std::strerror(failure));
  }
  data_ = static_cast<char*>(address);
}

SharedMemory::SharedMemory(int fd, Access access) : fd_(fd) {
  struct stat status {};
  void* address = MAP_FAILED;
  if (fstat(fd, &status) == 0 && status.st_size > 0) {
    const int protection = access == Access::read_only ? PROT_READ : PROT_READ | PROT_WRITE;
    address = mmap(nullptr, static_cast<size_t>(status.st_size), protection, MAP_SHARED, fd, 0);
  }
  if (address == MAP_FAILED) {
    const std::string why = std::strerror(errno);
    close(fd);
    throw Error("cannot map shared memory: " + why);
  }
  data_ = static_cast<char*>(address);
  bytes_ = static_cast<size_t>(status.st_size);
}

SharedMemory::~SharedMemory() {
  munmap(data_, bytes_);
  close(fd_);
}

}  // namespace taut::data
