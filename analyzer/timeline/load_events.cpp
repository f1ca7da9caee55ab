// The TAUT_* tables: steps, passes, collectives, batches, loader work, tensor uses and memory, by rank.
#include <algorithm>
#include <cmath>
#include <limits>

#include "analyzer/timeline/loading.h"
#include "tracer/store/ids.h"

namespace taut::timeline {
namespace {

constexpr Op kOps[] = {Op::all_reduce, Op::all_gather, Op::reduce_scatter, Op::broadcast,
                       Op::all_to_all, Op::send,       Op::recv,           Op::barrier};
constexpr LoaderPhase kPhases[] = {LoaderPhase::read, LoaderPhase::tokenize, LoaderPhase::pack, LoaderPhase::hand_over,
                                   LoaderPhase::blocked};

constexpr int64_t kMostChunks = 1 << 16;

Op parse_op(std::string_view text) {
  for (Op op : kOps) {
    if (text == op_name(op)) return op;
  }
  return Op::unknown;
}

LoaderPhase parse_phase(std::string_view text) {
  for (LoaderPhase phase : kPhases) {
    if (text == phase_name(phase)) return phase;
  }
  return LoaderPhase::unknown;
}

int32_t narrow(int64_t value) {
  return static_cast<int32_t>(
      std::clamp<int64_t>(value, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
}

void read_steps(Draft& draft) {
  auto rows = draft.reader.rows("TAUT_STEP", {"rank", "step", "start", "end", "tokens", "loss"});
  while (rows.next()) {
    const int64_t start = rows.integer(2), end = rows.integer(3);
    Rank* rank = draft.rank(rows.integer(0, -1));
    if (rows.is_null(3)) continue;  // the step in which the process died
    if (!rank || rows.is_null(2) || !Draft::sensible(start, end)) {
      draft.reject();
      continue;
    }
    rank->steps.push_back({.step = rows.integer(1),
                           .start = start,
                           .end = end,
                           .tokens = std::max<int64_t>(0, rows.integer(4)),
                           .loss = rows.real(5, std::nan("")),
                           .rowid = rows.rowid()});
    draft.timeline.step_source = StepSource::taut;
  }
}

void read_microbatches(Draft& draft) {
  auto rows = draft.reader.rows("TAUT_MICROBATCH", {"eventId", "rank", "step", "microbatch", "stage", "chunk", "pass"});
  while (rows.next()) {
    const NvtxRow* event = draft.find_nvtx(rows.integer(0, -1));
    Rank* rank = draft.rank(rows.integer(1, -1));
    const std::string_view pass = rows.text(6);
    if (!event || !rank || pass.size() != 1) {
      draft.reject();
      continue;
    }
    rank->microbatches.push_back({.step = rows.integer(2),
                                  .start = event->start,
                                  .end = event->end,
                                  .microbatch = narrow(rows.integer(3)),
                                  .stage = narrow(rows.integer(4)),
                                  .chunk = static_cast<int32_t>(std::clamp<int64_t>(rows.integer(5), 0, kMostChunks)),
                                  .pass = pass[0],
                                  .rowid = rows.rowid(),
                                  .event_rowid = event->rowid});
  }
}

void read_collectives(Draft& draft) {
  auto rows =
      draft.reader.rows("TAUT_COLLECTIVE", {"eventId", "rank", "op", "groupId", "groupSize", "seq", "bytes", "tensorId",
                                            "tensorVersion", "peer", "isAsync", "waitStart", "waitEnd"});
  while (rows.next()) {
    const NvtxRow* event = draft.find_nvtx(rows.integer(0, -1));
    Rank* rank = draft.rank(rows.integer(1, -1));
    if (!event || !rank) {
      draft.reject();
      continue;
    }
    Collective c{.start = event->start, .end = event->end};
    c.op = parse_op(rows.text(2));
    c.group_id = rows.integer(3);
    c.group_size = narrow(rows.integer(4));
    c.seq = rows.integer(5);
    c.bytes = std::max<int64_t>(0, rows.integer(6));
    c.tensor_id = rows.integer(7);
    c.tensor_version = rows.integer(8);
    c.peer = narrow(rows.integer(9, -1));
    c.is_async = rows.integer(10) != 0;
    c.rowid = rows.rowid();
    c.event_rowid = event->rowid;
    // A blocking operation whose wait was not marked blocks from issue to completion.
    c.wait_start = rows.is_null(11) ? (c.is_async ? c.end : c.start) : rows.integer(11);
    c.wait_end = rows.is_null(12) ? std::max(c.wait_start, c.end) : rows.integer(12);
    if (!Draft::sensible(c.wait_start, c.wait_end)) {
      draft.reject();
      c.wait_start = c.wait_end = c.end;
    }
    rank->collectives.push_back(c);
  }
}

void read_batches(Draft& draft) {
  auto rows = draft.reader.rows(
      "TAUT_BATCH", {"eventId", "rank", "step", "waitStart", "waitEnd", "workers", "queueDepth", "sampleHash"});
  while (rows.next()) {
    const NvtxRow* event = draft.find_nvtx(rows.integer(0, -1));
    Rank* rank = draft.rank(rows.integer(1, -1));
    const int64_t start = rows.is_null(3) && event ? event->start : rows.integer(3);
    const int64_t end = rows.is_null(4) && event ? event->end : rows.integer(4);
    if (!rank || !Draft::sensible(start, end)) {
      draft.reject();
      continue;
    }
    rank->batches.push_back({.step = rows.integer(2),
                             .wait_start = start,
                             .wait_end = end,
                             .workers = narrow(rows.integer(5)),
                             .queue_depth = narrow(rows.integer(6)),
                             .sample_hash = static_cast<uint64_t>(rows.integer(7)),
                             .rowid = rows.rowid(),
                             .event_rowid = rows.integer(0)});
  }
}

void read_loader_work(Draft& draft) {
  auto rows = draft.reader.rows("TAUT_LOADER_WORK", {"eventId", "rank", "worker", "batch", "samples", "phase"});
  while (rows.next()) {
    const NvtxRow* event = draft.find_nvtx(rows.integer(0, -1));
    Rank* rank = draft.rank(rows.integer(1, -1));
    if (!event || !rank) {
      draft.reject();
      continue;
    }
    rank->loader_work.push_back({.start = event->start,
                                 .end = event->end,
                                 .batch = rows.integer(3),
                                 .worker = narrow(rows.integer(2)),
                                 .samples = narrow(rows.integer(4)),
                                 .phase = parse_phase(rows.text(5)),
                                 .rowid = rows.rowid(),
                                 .event_rowid = event->rowid});
    if (!draft.rank_by_pid.contains(store::global_pid_of(event->global_tid))) {
      draft.loader_threads[event->global_tid] = {rank->rank, narrow(rows.integer(2))};
    }
  }
}

void read_tensor_uses(Draft& draft) {
  auto rows =
      draft.reader.rows("TAUT_TENSOR_USE", {"eventId", "rank", "tensorId", "tensorVersion", "bytesUsed", "bytesTotal"});
  while (rows.next()) {
    const NvtxRow* event = draft.find_nvtx(rows.integer(0, -1));
    Rank* rank = draft.rank(rows.integer(1, -1));
    if (!event || !rank) {
      draft.reject();
      continue;
    }
    rank->tensor_uses.push_back(
        {event->start, rows.integer(2), rows.integer(3), rows.integer(4), rows.integer(5), rows.rowid()});
  }
}

void read_expert_loads(Draft& draft) {
  auto rows = draft.reader.rows("TAUT_EXPERT", {"eventId", "rank", "step", "layer", "expert", "tokens", "dropped"});
  while (rows.next()) {
    const NvtxRow* event = draft.find_nvtx(rows.integer(0, -1));
    Rank* rank = draft.rank(rows.integer(1, -1));
    if (!event || !rank || rows.integer(5) < 0 || rows.integer(6) < 0 || rows.integer(6) > rows.integer(5)) {
      draft.reject();
      continue;
    }
    rank->expert_loads.push_back({.time = event->start,
                                  .step = rows.integer(2),
                                  .tokens = rows.integer(5),
                                  .dropped = rows.integer(6),
                                  .layer = narrow(rows.integer(3)),
                                  .expert = narrow(rows.integer(4)),
                                  .rowid = rows.rowid()});
  }
}

void read_memory(Draft& draft) {
  auto rows = draft.reader.rows("TAUT_MEMORY", {"globalPid", "time", "device", "allocated", "reserved", "rss"});
  while (rows.next()) {
    const auto owner = draft.rank_by_pid.find(rows.integer(0));
    if (owner == draft.rank_by_pid.end()) continue;  // a loader or the launcher
    draft.ranks[owner->second].memory.push_back(
        {rows.integer(1), rows.integer(3), rows.integer(4), rows.integer(5), narrow(rows.integer(2, -1))});
  }
}

}  // namespace

void read_events(Draft& draft) {
  read_steps(draft);
  read_microbatches(draft);
  read_collectives(draft);
  read_batches(draft);
  read_loader_work(draft);
  read_tensor_uses(draft);
  read_expert_loads(draft);
  read_memory(draft);
}

}  // namespace taut::timeline
