// Makes rows of records: pairs pushes with pops and starts with ends, puts results onto the ranges that they belong to
// and waits onto their collectives, and writes NVTX_EVENTS and the TAUT_* tables.
//
// One ProcessTrace for each traced process, fed lane by lane; within a lane records come in order, between lanes an end
// may be seen before its start. Used by the collector's thread only. Throws what store::Writer throws.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "tracer/annotate/annotate.h"
#include "tracer/collect/ring.h"
#include "tracer/collect/ring_reader.h"
#include "tracer/store/writer.h"

namespace taut::collect {

/// What all processes of a trace share.
struct TraceState {
  TraceState(store::Writer& to, int64_t node_number, int64_t start_ns)
      : writer(to), node(node_number), session_start_ns(start_ns) {}

  store::Writer& writer;
  int64_t node;
  int64_t session_start_ns;                // CLOCK_MONOTONIC
  std::map<std::string, int64_t> domains;  // name -> domainId, from 1; 0 is the default domain
  std::set<int64_t> groups;                // already in TAUT_GROUP
  int64_t nvtx_rows = 0;
};

class ProcessTrace {
 public:
  /// `ring` must outlive this. Writes the PROCESSES row.
  ProcessTrace(TraceState& trace, const RingReader& ring);

  void take(size_t lane, const Record& record, const unsigned char* payload);

  /// The process has ended or the trace ends: ranges that are still open get a row without an end, and ThreadNames and
  /// TAUT_LOSS theirs. Returns the number of lost events.
  int64_t finish();

  int64_t global_pid() const { return global_pid_; }

 private:
  struct Range {
    Record record;
    uint32_t tid = 0;
    std::array<unsigned char, kMaxPayloadBytes> bytes;  // record.payload_bytes of them are set
    std::optional<annotate::StepResult> step_result;
    std::optional<annotate::BatchResult> batch_result;
  };
  struct Lane {
    uint32_t tid = 0;
    std::vector<std::vector<Range>> open;  // by domain: the pushes that are not popped yet
  };
  struct End {
    int64_t time_ns;
    uint32_t tid;
  };
  struct CollectiveKey {
    int64_t group_id, seq;
    int32_t op, peer;
    bool operator==(const CollectiveKey&) const = default;
  };
  struct HashKey {
    size_t operator()(const CollectiveKey& key) const {
      uint64_t h = static_cast<uint64_t>(key.group_id) * 0x9e3779b97f4a7c15;
      h = (h ^ static_cast<uint64_t>(key.seq)) * 0x9fb21c651e98df25;
      h ^= static_cast<uint64_t>(static_cast<uint32_t>(key.op)) << 32 | static_cast<uint32_t>(key.peer);
      return static_cast<size_t>(h ^ (h >> 29));
    }
  };
  struct Wait {
    int64_t start, end;
  };

  Lane& lane(size_t index);
  std::vector<Range>& stack(Lane& lane, uint16_t domain);
  void push(Lane& lane, const Record& record, const unsigned char* payload);
  void pop(Lane& lane, const Record& record);
  void start_range(uint32_t tid, const Record& record, const unsigned char* payload);
  void end_range(const Record& record, uint32_t tid);
  void mark(Lane& lane, const Record& record, const unsigned char* payload);
  void close(const Range& range, int event_type, std::optional<End> end);
  void store_range(const Range& range, int64_t event, int64_t start, int64_t end);
  void attach_result(Lane& lane, const Record& record, const unsigned char* payload);
  void store_wait(const annotate::CollectiveWait& wait, int64_t start, int64_t end);
  int64_t write_event(const Record& record, const unsigned char* payload, int event_type, uint32_t tid,
                      std::optional<End> end);

  int64_t since_start(int64_t time_ns) const { return time_ns - trace_.session_start_ns; }
  int64_t global_tid(uint32_t tid) const;
  int64_t string_id(uint32_t name);
  int64_t domain_id(uint16_t domain);
  bool is_taut(uint16_t domain);

  TraceState& trace_;
  const RingReader& ring_;
  int64_t global_pid_;
  std::vector<Lane> lanes_;
  std::vector<int64_t> string_ids_;              // by the ring's name id; -1 = not yet known
  std::array<int64_t, kMaxDomains> domain_ids_;  // by the ring's domain; -1 = not yet known
  int taut_domain_ = -1;
  std::unordered_map<uint64_t, Range> started_;  // by range id
  std::unordered_map<uint64_t, End> ended_early_;
  std::unordered_map<CollectiveKey, int64_t, HashKey> unwaited_;  // TAUT_COLLECTIVE rowids
  std::unordered_map<CollectiveKey, Wait, HashKey> early_waits_;
  std::map<uint32_t, std::string> thread_names_;
};

}  // namespace taut::collect
