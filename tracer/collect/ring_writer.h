// The producer's side of a ring file: what libtaut_inject.so writes with. No LibTorch, no SQLite, no exceptions.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "tracer/collect/ring.h"

namespace taut::collect {

/// One thread's end of a lane. Used by that thread alone.
class LaneWriter {
 public:
  LaneWriter(LaneHeader* header, Record* slots)
      : header_(header), slots_(slots), head_(header->head.load()), tail_(header->tail.load()) {}

  /// Appends the record and, from `payload`, its payload_bytes (≤ kMaxPayloadBytes). False if there is no room: the
  /// event is counted as dropped. `reserve` slots are left free. Lock-free, no system call.
  bool write(Record& record, const void* payload, size_t reserve) {
    const size_t extra = continuation_slots(record.payload_bytes);
    if (head_ + 1 + extra + reserve > tail_ + kLaneRecords) {
      tail_ = header_->tail.load(std::memory_order_acquire);
      if (head_ + 1 + extra + reserve > tail_ + kLaneRecords) {
        header_->dropped.store(header_->dropped.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        return false;
      }
    }
    record.continuation = static_cast<uint8_t>(extra);
    const size_t inline_bytes = record.payload_bytes < kInlineBytes ? record.payload_bytes : kInlineBytes;
    if (payload) std::memcpy(record.bytes, payload, inline_bytes);
    slots_[head_ % kLaneRecords] = record;
    const auto* rest = static_cast<const unsigned char*>(payload) + inline_bytes;
    size_t left = record.payload_bytes - inline_bytes;
    for (size_t i = 1; i <= extra; ++i) {
      const size_t bytes = left < sizeof(Record) ? left : sizeof(Record);
      std::memcpy(static_cast<void*>(&slots_[(head_ + i) % kLaneRecords]), rest, bytes);
      rest += bytes;
      left -= bytes;
    }
    head_ += 1 + extra;
    header_->head.store(head_, std::memory_order_release);
    return true;
  }

 private:
  LaneHeader* header_;
  Record* slots_;
  uint64_t head_, tail_;  // tail_ is the last value seen
};

/// This process's ring file. All functions but LaneWriter's may be called from any thread; they take a lock, so hot
/// paths cache their results.
class RingWriter {
 public:
  /// Creates the file in `folder`. With `parent` (after fork), the parent's names and domains keep their ids. Null if
  /// it cannot be created (no room, no permission).
  static std::unique_ptr<RingWriter> create(const char* folder, const RingWriter* parent);
  /// Unmaps; the file stays for the collector.
  ~RingWriter();
  /// In a forked child: stop looking like a living writer of the parent's file. Names stay readable for create().
  void abandon();
  RingWriter(const RingWriter&) = delete;
  RingWriter& operator=(const RingWriter&) = delete;

  /// The name's id; 0 for an empty name or when there is no room (counted).
  uint32_t intern(std::string_view name);
  /// The text of a name interned before.
  std::string_view name(uint32_t id) const;
  /// The index of the domain of that name; `created` is set when it is new.
  uint16_t domain(std::string_view name, bool& created);

  /// A lane for the calling thread, or null when there is none: the caller counts its events with drop().
  std::unique_ptr<LaneWriter> claim_lane(uint32_t tid, size_t& lane);
  void release_lane(size_t lane) { header_->lane_owner[lane].store(0, std::memory_order_release); }
  void drop() { header_->dropped_no_lane.fetch_add(1, std::memory_order_relaxed); }

 private:
  RingWriter() = default;
  bool map_lane(size_t lane);

  int fd_ = -1;
  RingHeader* header_ = nullptr;
  char* strings_ = nullptr;
  size_t strings_allocated_ = 0;
  char* lanes_[kMaxLanes] = {};
  std::mutex mutex_;
  std::unordered_map<std::string_view, uint32_t> ids_;  // keys point into the names area
};

}  // namespace taut::collect
