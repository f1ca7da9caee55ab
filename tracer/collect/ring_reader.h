// The collector's side of a ring file. The file is written by another process, so every offset is checked.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tracer/collect/ring.h"

namespace taut::collect {

class RingReader {
 public:
  /// Null if the file is not a ring (yet).
  static std::unique_ptr<RingReader> open(const std::string& path);
  ~RingReader();
  RingReader(const RingReader&) = delete;
  RingReader& operator=(const RingReader&) = delete;

  int pid() const { return header_->pid; }
  int64_t created_ns() const { return header_->created_ns; }
  std::string program() const;

  /// Lanes that exist now; new ones appear while the process runs.
  size_t lane_count() const;

  /// Calls take(const Record&, const unsigned char* payload) for the records that are in `lane` now, then frees their
  /// slots. `payload` has record.payload_bytes bytes. Returns the number of records.
  template <class Take>
  size_t drain(size_t lane, Take&& take);

  /// The name's text; "?" for an id that the file does not have.
  std::string_view name(uint32_t id) const;
  uint32_t domain_count() const;
  std::string_view domain_name(uint32_t domain) const;

  uint64_t dropped(size_t lane) const;
  uint64_t dropped_without_lane() const { return header_->dropped_no_lane.load(std::memory_order_relaxed); }
  uint64_t lost_names() const { return header_->lost_names.load(std::memory_order_relaxed); }

  /// True once the process that writes has ended (or exec'ed another program).
  bool writer_gone() const;

 private:
  RingReader() = default;
  LaneHeader* lane(size_t index) const;

  int fd_ = -1;
  RingHeader* header_ = nullptr;  // header and names
  mutable std::vector<char*> lanes_;
};

template <class Take>
size_t RingReader::drain(size_t index, Take&& take) {
  LaneHeader* header = lane(index);
  if (header == nullptr) return 0;
  const auto* slots = reinterpret_cast<const Record*>(reinterpret_cast<const char*>(header) + kLaneHeaderBytes);
  uint64_t tail = header->tail.load(std::memory_order_relaxed);
  const uint64_t head = header->head.load(std::memory_order_acquire);
  if (head < tail || head - tail > kLaneRecords) return 0;  // a damaged file
  constexpr uint64_t kFreeEvery = 4096;                     // give room back while there is still much to do
  uint64_t freed = tail;
  size_t count = 0;
  unsigned char payload[kMaxPayloadBytes];
  while (tail < head) {
    const Record& record = slots[tail % kLaneRecords];
    const uint64_t slots_used = 1 + uint64_t{record.continuation};
    size_t bytes = record.payload_bytes;
    if (bytes > kMaxPayloadBytes || continuation_slots(bytes) != record.continuation || slots_used > head - tail) {
      tail = head;  // a damaged file: skip what is there
      break;
    }
    const unsigned char* data = record.bytes;
    if (record.continuation > 0) {
      size_t at = kInlineBytes;
      std::memcpy(payload, record.bytes, at);
      for (uint64_t i = 1; i < slots_used; ++i) {
        const size_t piece = bytes - at < sizeof(Record) ? bytes - at : sizeof(Record);
        std::memcpy(payload + at, &slots[(tail + i) % kLaneRecords], piece);
        at += piece;
      }
      data = payload;
    }
    take(record, data);
    ++count;
    tail += slots_used;
    if (tail - freed >= kFreeEvery) {
      header->tail.store(tail, std::memory_order_release);
      freed = tail;
    }
  }
  header->tail.store(tail, std::memory_order_release);
  return count;
}

}  // namespace taut::collect
