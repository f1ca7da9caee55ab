#include "tracer/collect/ring_reader.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace taut::collect {

std::unique_ptr<RingReader> RingReader::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return nullptr;
  auto reader = std::unique_ptr<RingReader>(new RingReader);
  reader->fd_ = fd;
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size < static_cast<off_t>(kStringsOffset))
    return nullptr;
  void* mapped = mmap(nullptr, kLanesOffset, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return nullptr;
  reader->header_ = static_cast<RingHeader*>(mapped);
  if (reader->header_->magic != kRingMagic || reader->header_->version != kRingVersion) return nullptr;
  return reader;
}

RingReader::~RingReader() {
  for (char* lane : lanes_)
    if (lane) munmap(lane, kLaneBytes);
  if (header_) munmap(header_, kLanesOffset);
  if (fd_ >= 0) close(fd_);
}

std::string RingReader::program() const {
  return {header_->program, strnlen(header_->program, sizeof header_->program)};
}

size_t RingReader::lane_count() const {
  return std::min<size_t>(header_->lane_count.load(std::memory_order_acquire), kMaxLanes);
}

LaneHeader* RingReader::lane(size_t index) const {
  if (index >= lane_count()) return nullptr;
  if (index >= lanes_.size()) lanes_.resize(index + 1, nullptr);
  char*& mapped = lanes_[index];
  if (!mapped) {
    const auto offset = static_cast<off_t>(kLanesOffset + index * kLaneBytes);
    struct stat info {};
    if (fstat(fd_, &info) != 0 || info.st_size < offset + static_cast<off_t>(kLaneBytes)) return nullptr;
    void* at = mmap(nullptr, kLaneBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, offset);
    if (at == MAP_FAILED) return nullptr;
    mapped = static_cast<char*>(at);
  }
  return reinterpret_cast<LaneHeader*>(mapped);
}

std::string_view RingReader::name(uint32_t id) const {
  const size_t end = std::min<size_t>(size_t{header_->strings_end.load(std::memory_order_acquire)} * 8, kStringsBytes);
  const size_t begin = size_t{id} * 8;
  uint32_t length;
  if (id == 0 || begin + sizeof length > end) return "?";
  const char* at = reinterpret_cast<const char*>(header_) + kStringsOffset + begin;
  std::memcpy(&length, at, sizeof length);
  if (length > end - begin - sizeof length) return "?";
  return {at + sizeof length, length};
}

uint32_t RingReader::domain_count() const {
  return std::min<uint32_t>(header_->domain_count.load(std::memory_order_acquire), kMaxDomains);
}

std::string_view RingReader::domain_name(uint32_t domain) const {
  return domain < domain_count() ? name(header_->domain_names[domain].load(std::memory_order_relaxed)) : "?";
}

uint64_t RingReader::dropped(size_t index) const {
  const LaneHeader* header = lane(index);
  return header ? header->dropped.load(std::memory_order_relaxed) : 0;
}

bool RingReader::writer_gone() const {
  // The writer holds a shared lock as long as it lives; the kernel drops it however the process ends.
  if (flock(fd_, LOCK_EX | LOCK_NB) != 0) return false;
  flock(fd_, LOCK_UN);
  return true;
}

}  // namespace taut::collect
