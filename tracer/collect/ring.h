// The shared-memory file in which one traced process leaves its events: a header, an append-only area of names, and one
// single-producer ring of 64-byte records for each thread ("lane"). The file outlives its process, so that a process
// killed with SIGKILL loses nothing it had written.
//
//   offset 0           RingHeader (64 KiB)
//   kStringsOffset     names: u32 length, bytes, padded to 8; a name's id is its offset / 8
//   kLanesOffset       lane 0, lane 1, …: LaneHeader (4 KiB), then kLaneRecords records
//
// The producer (ring_writer.h) publishes `head`, the collector (ring_reader.h) publishes `tail`; both only grow, and
// record i lies in slot i % kLaneRecords. A record may be followed by raw continuation slots with the rest of its
// payload; all of them are published at once. A full lane drops the event and counts it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace taut::collect {

inline constexpr uint64_t kRingMagic = 0x3130474e49524154;  // "TARING01"
inline constexpr uint32_t kRingVersion = 1;

inline constexpr size_t kMaxLanes = 256;         // threads alive at the same time
inline constexpr size_t kMaxDomains = 64;        // NVTX domains; later ones share the last
inline constexpr size_t kLaneRecords = 32768;    // 2 MiB a thread: 0.3 s at 100,000 records a second
inline constexpr size_t kPopReserve = 512;       // slots that only range ends may use, so that ranges close
inline constexpr size_t kInlineBytes = 16;       // payload bytes inside the record
inline constexpr size_t kMaxPayloadBytes = 128;  // longer payloads are cut

inline constexpr size_t kStringsOffset = 64 * 1024;
inline constexpr size_t kStringsBytes = 16 * 1024 * 1024;
inline constexpr size_t kStringsChunk = 256 * 1024;  // allocated piece by piece
inline constexpr size_t kLanesOffset = kStringsOffset + kStringsBytes;

/// What a record says.
enum class Kind : uint8_t {
  thread_start = 1,  // a new thread owns this lane: value = tid, inline bytes = its name
  push,              // id = nesting depth in this thread and domain, from 0
  pop,               // id = depth of the push that it closes
  start,             // id = range id, unique in the process
  end,               // id = range id
  mark,
  domain,       // name, domain: a domain was created
  category,     // name, domain, category: a category was named
  thread_name,  // name, value = tid
};

/// How `value` and the payload bytes are to be read.
enum class Payload : uint8_t { none, u64, i64, f64, u32, i32, f32, extended };

/// One event. `value` is a scalar payload's bits or an extended payload's schema id.
struct Record {
  int64_t time_ns;  // CLOCK_MONOTONIC
  Kind kind;
  Payload payload;
  uint8_t continuation;  // raw slots that follow
  uint8_t has_color;
  uint32_t name;           // id in the names area; 0 = none
  uint16_t domain;         // index into RingHeader::domain_names; 0 = the default domain
  uint16_t payload_bytes;  // of the extended payload as stored here
  uint32_t category;
  uint32_t color;       // ARGB
  uint32_t full_bytes;  // of the extended payload before it was cut
  uint64_t id;
  uint64_t value;
  unsigned char bytes[kInlineBytes];
};
static_assert(sizeof(Record) == 64);

struct LaneHeader {
  alignas(64) std::atomic<uint64_t> head;  // producer's line
  std::atomic<uint64_t> dropped;
  alignas(64) std::atomic<uint64_t> tail;  // collector's line
};
inline constexpr size_t kLaneHeaderBytes = 4096;
inline constexpr size_t kLaneBytes = kLaneHeaderBytes + kLaneRecords * sizeof(Record);

struct RingHeader {
  uint64_t magic;
  uint32_t version;
  int32_t pid;
  int64_t created_ns;                 // CLOCK_MONOTONIC
  char program[256];                  // path of the executable, NUL-terminated
  std::atomic<uint32_t> lane_count;   // lanes that exist in the file
  std::atomic<uint32_t> strings_end;  // first free byte of the names area / 8
  std::atomic<uint32_t> domain_count;
  std::atomic<uint64_t> dropped_no_lane;  // events of threads for which there was no lane
  std::atomic<uint64_t> lost_names;       // names for which the area had no room
  std::atomic<uint32_t> domain_names[kMaxDomains];
  std::atomic<uint32_t> lane_owner[kMaxLanes];  // tid, 0 = free for a new thread
};
static_assert(sizeof(RingHeader) <= kStringsOffset);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

/// Continuation slots for a payload of `bytes` ≤ kMaxPayloadBytes.
constexpr size_t continuation_slots(size_t bytes) {
  return bytes <= kInlineBytes ? 0 : (bytes - kInlineBytes + sizeof(Record) - 1) / sizeof(Record);
}

}  // namespace taut::collect
