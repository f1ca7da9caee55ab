// A trace in memory: columns of slices per lane, and the typed events of every rank, sorted by time.
//
// Loaded once from a trace file (`load`), immutable afterwards, so any number of threads may read it. Times are integer
// nanoseconds since the session start and may be negative (ranges that were open when tracing began).
// Sources: the nsys export tables (NVTX_EVENTS, CUPTI_*) and the TAUT_* tables; a table that is absent leaves its
// columns empty. Rows that make no sense (end before start, dangling ids) are left out and counted in `Quality`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace taut::timeline {

/// What a slice is about. `other` = nobody knows: an NVTX range of the user, an unknown thread's work.
enum class Kind : uint8_t { compute, communication, loader, copy, sync, checkpoint, pipeline_wait, host, step, other };
inline constexpr size_t kKinds = 10;
const char* kind_name(Kind kind);

/// The table a slice's or event's `rowid` points into.
enum class Table : uint8_t {
  nvtx,
  kernel,
  memcpy,
  memset,
  runtime,
  step,
  collective,
  microbatch,
  batch,
  loader_work,
  tensor_use,
  expert
};
const char* table_name(Table table);

/// `trainer` = a thread of a rank's process that trains (the one that carries its steps); `collectives` = start/end
/// ranges of collectives, packed so that overlapping ones have different depths; `ranges` = other start/end ranges;
/// `cuda_api` = runtime and driver calls of one thread.
enum class LaneType : uint8_t { trainer, loader, collectives, ranges, gpu_stream, cuda_api, other_thread };

/// Columns of equal length, sorted by start, longer slices first. `parent` is an index into the same columns, -1 at
/// depth 0; a slice lies within its parent. `name` indexes Timeline::names.
struct Slices {
  std::vector<int64_t> start, end;
  std::vector<uint32_t> name;
  std::vector<Kind> kind;
  std::vector<uint16_t> depth;
  std::vector<int32_t> parent;
  std::vector<Table> table;
  std::vector<int64_t> rowid;

  size_t size() const { return start.size(); }
};

struct Lane {
  LaneType type = LaneType::other_thread;
  int32_t rank = -1;                 // -1 = belongs to no rank
  std::string title;                 // "rank 0 trainer", "rank 1 loader 2", "GPU 0 stream 7"
  int64_t global_tid = 0;            // of host lanes; the process part only for collectives, ranges and GPU streams
  int32_t device = -1, stream = -1;  // of GPU streams
  uint16_t max_depth = 0;
  Slices slices;
};

struct Step {
  int64_t step = 0, start = 0, end = 0;
  int64_t tokens = 0;  // of this rank's data-parallel replica
  double loss = 0;     // NaN where the rank does not have it
  int64_t rowid = 0;   // TAUT_STEP, or NVTX_EVENTS where steps come from foreign ranges
};

/// One pass of one microbatch on one stage; `pass` is 'F', 'B' or 'W'.
struct Microbatch {
  int64_t step = 0, start = 0, end = 0;
  int32_t microbatch = 0, stage = 0, chunk = 0;
  char pass = 'F';
  int64_t rowid = 0, event_rowid = 0;  // TAUT_MICROBATCH, NVTX_EVENTS
};

enum class Op : uint8_t { all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, send, recv, barrier, unknown };
const char* op_name(Op op);

/// From issue (`start`) to completion (`end`); the trainer blocked on it in [wait_start, wait_end), equal where it
/// never did. Members of one collective share (group_id, op, seq); a send and its recv share (group_id, sender,
/// receiver, seq).
struct Collective {
  int64_t start = 0, end = 0, wait_start = 0, wait_end = 0;
  int64_t group_id = 0, seq = 0, bytes = 0, tensor_id = 0, tensor_version = 0;
  int32_t group_size = 0, peer = -1;
  Op op = Op::unknown;
  bool is_async = false;
  int64_t rowid = 0, event_rowid = 0;  // TAUT_COLLECTIVE, NVTX_EVENTS
};

/// The trainer asked its loader for a microbatch and got it at `wait_end`.
struct Batch {
  int64_t step = 0, wait_start = 0, wait_end = 0;
  int32_t workers = 0, queue_depth = 0;
  uint64_t sample_hash = 0;
  int64_t rowid = 0, event_rowid = 0;
};

enum class LoaderPhase : uint8_t { read, tokenize, pack, hand_over, blocked, unknown };
const char* phase_name(LoaderPhase phase);

struct LoaderWork {
  int64_t start = 0, end = 0, batch = 0;
  int32_t worker = 0, samples = 0;
  LoaderPhase phase = LoaderPhase::unknown;
  int64_t rowid = 0, event_rowid = 0;
};

struct TensorUse {
  int64_t time = 0, tensor_id = 0, tensor_version = 0, bytes_used = 0, bytes_total = 0;
  int64_t rowid = 0;
};

/// What the router of one mixture-of-experts layer sent to one expert in one step, of this rank's own tokens.
struct ExpertLoad {
  int64_t time = 0, step = 0, tokens = 0;  // tokens: dropped ones included
  int64_t dropped = 0;                     // beyond the expert's capacity
  int32_t layer = 0, expert = 0;
  int64_t rowid = 0;
};

struct MemorySample {
  int64_t time = 0, allocated = 0, reserved = 0, rss = 0;  // bytes
  int32_t device = -1;
};

/// One rank and everything it did, each vector sorted by time. In a file without TAUT_RANK a rank is a process with GPU
/// work (or, where the file names no processes, a device); its mesh is then unknown (dp = rank, the rest 0).
struct Rank {
  int32_t rank = 0, node = 0, dp = 0, tp = 0, pp = 0, cp = 0, ep = 0, device = -1;
  int64_t global_pid = 0;
  int32_t trainer_lane = -1;    // index into Timeline::lanes, -1 = none
  std::vector<uint32_t> lanes;  // all lanes of this rank
  bool has_gpu_slices = false;
  std::vector<Step> steps;
  std::vector<Microbatch> microbatches;
  std::vector<Collective> collectives;
  std::vector<Batch> batches;
  std::vector<LoaderWork> loader_work;
  std::vector<TensorUse> tensor_uses;
  std::vector<ExpertLoad> expert_loads;
  std::vector<MemorySample> memory;
};

struct Group {
  std::string name;  // "world", "tp0", "dp1", …; empty when unknown
  int32_t size = 0;
};

/// Which CUDA call launched which GPU slice, matched by (process, correlation id).
struct Launch {
  uint32_t api_lane = 0, api_slice = 0, gpu_lane = 0, gpu_slice = 0;
};

/// How far the trace can be trusted.
struct Quality {
  int64_t dropped_events = 0;          // TAUT_LOSS
  int64_t clock_error_ns = 0;          // largest of TAUT_CLOCK
  int64_t unmatched_correlations = 0;  // GPU slices whose launch is not in the file
  int64_t rejected_rows = 0;           // rows left out because they make no sense
  std::vector<std::string> warnings;   // sentences for people
};

/// Where the steps come from; the report says so.
enum class StepSource : uint8_t { none, taut, profiler_step, optimizer_step };
const char* step_source_name(StepSource source);

struct Timeline {
  std::string path;
  int64_t start_ns = 0, end_ns = 0;  // first start and last end of all slices
  int64_t events = 0;                // slices in all lanes
  std::vector<std::string> names;    // interned; index = Slices::name
  std::vector<Lane> lanes;           // by rank, then trainer, loaders, collectives, GPU streams, the rest
  std::vector<Rank> ranks;           // by rank number
  std::vector<Launch> launches;
  std::map<int64_t, Group> groups;
  std::map<std::string, std::string> meta;      // TAUT_META, or META_DATA_EXPORT of a foreign file
  std::map<int32_t, std::string> device_names;  // TARGET_INFO_GPU
  int64_t cpu_cores = 0;                        // of the (first) host; 0 = unknown
  StepSource step_source = StepSource::none;
  Quality quality;

  /// The rank with this number, or null.
  const Rank* find_rank(int32_t rank) const;
  /// The effective training config as JSON text, empty when the trace does not carry one.
  std::string_view config_json() const;
};

/// Reads a whole trace: ours or an nsys export (schema 3.x). O(n log n) in its rows. Throws taut::Error when the file
/// is missing, unreadable, truncated, no SQLite file, or holds none of the tables above.
Timeline load(const std::filesystem::path& path);

}  // namespace taut::timeline
