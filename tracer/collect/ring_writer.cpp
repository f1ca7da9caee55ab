#include "tracer/collect/ring_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

namespace taut::collect {
namespace {

constexpr uint32_t kFirstName = 1;  // id 0 means "no name"

int64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

constexpr size_t padded(size_t bytes) {
  return (bytes + 7) / 8 * 8;
}

}  // namespace

std::unique_ptr<RingWriter> RingWriter::create(const char* folder, const RingWriter* parent) {
  // Written under a hidden name and renamed, so that the collector never sees half a header.
  char hidden[512], final_name[512];
  const int pid = getpid();
  int fd = -1;
  for (int attempt = 0; attempt < 10000 && fd < 0; ++attempt) {  // a pid may come back, or exec a new program
    snprintf(final_name, sizeof final_name, "%s/%d-%d.ring", folder, pid, attempt);
    snprintf(hidden, sizeof hidden, "%s/.%d-%d.new", folder, pid, attempt);
    if (access(final_name, F_OK) == 0) continue;
    fd = open(hidden, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno != EEXIST) return nullptr;
  }
  if (fd < 0) return nullptr;

  auto ring = std::unique_ptr<RingWriter>(new RingWriter);
  ring->fd_ = fd;
  const uint32_t parent_end = parent ? parent->header_->strings_end.load(std::memory_order_acquire) : 0;
  size_t allocate = kStringsChunk;
  while (allocate < size_t{parent_end} * 8) allocate += kStringsChunk;
  // Allocating (not only reserving) matters: touching a page that a full tmpfs cannot give kills the process.
  int failed = posix_fallocate(fd, 0, static_cast<off_t>(kStringsOffset + allocate));
  if (!failed && flock(fd, LOCK_SH | LOCK_NB) != 0) failed = errno;
  void* mapped = failed ? MAP_FAILED : mmap(nullptr, kLanesOffset, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) {
    const int why = failed ? failed : errno;
    unlink(hidden);
    errno = why;
    return nullptr;
  }
  ring->header_ = static_cast<RingHeader*>(mapped);
  ring->strings_ = static_cast<char*>(mapped) + kStringsOffset;
  ring->strings_allocated_ = allocate;

  RingHeader& header = *ring->header_;
  header.magic = kRingMagic;
  header.version = kRingVersion;
  header.pid = pid;
  header.created_ns = monotonic_ns();
  const ssize_t length = readlink("/proc/self/exe", header.program, sizeof header.program - 1);
  header.program[length > 0 ? length : 0] = '\0';
  if (parent) {
    std::memcpy(ring->strings_, parent->strings_, size_t{parent_end} * 8);
    for (uint32_t at = kFirstName; at < parent_end;) {
      const std::string_view text = ring->name(at);
      ring->ids_.emplace(text, at);
      at += static_cast<uint32_t>(padded(sizeof(uint32_t) + text.size()) / 8);
    }
    const uint32_t domains = parent->header_->domain_count.load();
    for (uint32_t i = 0; i < domains; ++i) header.domain_names[i] = parent->header_->domain_names[i].load();
    header.domain_count = domains;
    header.strings_end = parent_end;
  } else {
    header.strings_end = kFirstName;
    header.domain_count = 1;  // the default domain has no name
  }
  if (rename(hidden, final_name) != 0) {
    unlink(hidden);
    return nullptr;
  }
  return ring;
}

RingWriter::~RingWriter() {
  for (char* lane : lanes_)
    if (lane) munmap(lane, kLaneBytes);
  if (header_) munmap(header_, kLanesOffset);
  if (fd_ >= 0) close(fd_);
}

void RingWriter::abandon() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

uint32_t RingWriter::intern(std::string_view name) {
  if (name.empty()) return 0;
  const std::lock_guard lock(mutex_);
  if (const auto known = ids_.find(name); known != ids_.end()) return known->second;
  const uint32_t id = header_->strings_end.load(std::memory_order_relaxed);
  const size_t begin = size_t{id} * 8, end = begin + padded(sizeof(uint32_t) + name.size());
  if (end > strings_allocated_) {
    const size_t more = (end - strings_allocated_ + kStringsChunk - 1) / kStringsChunk * kStringsChunk;
    if (strings_allocated_ + more > kStringsBytes ||
        posix_fallocate(fd_, static_cast<off_t>(kStringsOffset + strings_allocated_), static_cast<off_t>(more)) != 0) {
      header_->lost_names.fetch_add(1, std::memory_order_relaxed);
      return 0;
    }
    strings_allocated_ += more;
  }
  const auto length = static_cast<uint32_t>(name.size());
  std::memcpy(strings_ + begin, &length, sizeof length);
  std::memcpy(strings_ + begin + sizeof length, name.data(), name.size());
  header_->strings_end.store(static_cast<uint32_t>(end / 8), std::memory_order_release);
  ids_.emplace(std::string_view(strings_ + begin + sizeof length, name.size()), id);
  return id;
}

std::string_view RingWriter::name(uint32_t id) const {
  if (id < kFirstName) return {};
  uint32_t length;
  std::memcpy(&length, strings_ + size_t{id} * 8, sizeof length);
  return {strings_ + size_t{id} * 8 + sizeof length, length};
}

uint16_t RingWriter::domain(std::string_view name, bool& created) {
  created = false;
  const uint32_t id = intern(name);
  const std::lock_guard lock(mutex_);
  const uint32_t count = header_->domain_count.load(std::memory_order_relaxed);
  for (uint32_t i = 1; i < count; ++i)
    if (header_->domain_names[i].load(std::memory_order_relaxed) == id) return static_cast<uint16_t>(i);
  if (count == kMaxDomains) return kMaxDomains - 1;
  header_->domain_names[count].store(id, std::memory_order_relaxed);
  header_->domain_count.store(count + 1, std::memory_order_release);
  created = true;
  return static_cast<uint16_t>(count);
}

bool RingWriter::map_lane(size_t lane) {
  const off_t offset = static_cast<off_t>(kLanesOffset + lane * kLaneBytes);
  if (posix_fallocate(fd_, offset, kLaneBytes) != 0) return false;
  // All of it at once: no page fault while events are written, and resident memory that does not creep up.
  void* mapped = mmap(nullptr, kLaneBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, offset);
  if (mapped == MAP_FAILED) return false;
  lanes_[lane] = static_cast<char*>(mapped);
  return true;
}

std::unique_ptr<LaneWriter> RingWriter::claim_lane(uint32_t tid, size_t& lane) {
  const std::lock_guard lock(mutex_);
  const uint32_t count = header_->lane_count.load(std::memory_order_relaxed);
  size_t found = 0;
  while (found < count && header_->lane_owner[found].load(std::memory_order_acquire) != 0) ++found;
  if (found == count) {
    if (count == kMaxLanes || !map_lane(found)) return nullptr;
    header_->lane_count.store(count + 1, std::memory_order_release);
  }
  header_->lane_owner[found].store(tid, std::memory_order_relaxed);
  lane = found;
  auto* header = reinterpret_cast<LaneHeader*>(lanes_[found]);
  auto writer = std::make_unique<LaneWriter>(header, reinterpret_cast<Record*>(lanes_[found] + kLaneHeaderBytes));

  Record record{};
  record.time_ns = monotonic_ns();
  record.kind = Kind::thread_start;
  record.payload_bytes = kInlineBytes;
  record.value = tid;
  char thread_name[kInlineBytes] = {};
  prctl(PR_GET_NAME, thread_name);
  if (!writer->write(record, thread_name, 0)) {  // whose events would follow is unknown, so nothing may follow
    header_->lane_owner[found].store(0, std::memory_order_release);
    return nullptr;
  }
  return writer;
}

}  // namespace taut::collect
