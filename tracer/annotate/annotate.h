// The NVTX vocabulary: everything Taut's runtime says about itself while it trains.
//
// The runtime speaks plain NVTX (domain "taut"), so any NVTX tool can listen; ours (tracer/collect) decodes the typed
// payloads below into the TAUT_* tables. Without a tool attached an annotation costs about a nanosecond.
//
// Two conventions carry what is known only at the end of a range:
//   - a *result* payload (StepResult, BatchResult) is marked inside the innermost open range of its thread;
//   - a collective is a start/end range (issue to completion, any thread); handing it over ("issue") and the trainer's
//     blocking on it are push/pop ranges, the latter with a CollectiveWait payload of the same (group_id, seq).
//
// Thread safety: every function may be called from any thread; push/pop nest per thread.
#pragma once

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

#include <cstddef>
#include <cstdint>

namespace taut::annotate {

inline constexpr const char* kDomainName = "taut";

/// Payload schema ids: static ids of this domain (NVTX reserves 2^24 .. 2^32 for them).
enum class SchemaId : uint64_t {
  rank = NVTX_PAYLOAD_SCHEMA_ID_STATIC_START + 0x7401,
  group,
  step,
  step_result,
  microbatch,
  collective,
  collective_wait,
  tensor_use,
  batch_wait,
  batch_result,
  loader_work,
  checkpoint,
  expert_load,
  memory,
};

/// Marked once per process: who this rank is in the mesh. `device` is the CUDA ordinal, -1 on CPU.
struct Rank {
  static constexpr SchemaId kSchema = SchemaId::rank;
  static constexpr const char* kName = "rank";
  int32_t rank, world_size, node, dp, tp, pp, cp, ep, device, reserved;
};
static_assert(sizeof(Rank) == 40);

/// Marked once per process group this rank belongs to; the mark's text is the group's name ("tp0", "dp1", "world").
/// `group_id` is equal on all members and unique in the job.
struct Group {
  static constexpr SchemaId kSchema = SchemaId::group;
  static constexpr const char* kName = "group";
  int64_t group_id;
  int32_t size, rank_in_group;
};
static_assert(sizeof(Group) == 16);

/// Push/pop range of one optimizer step. Steps count from 0.
struct Step {
  static constexpr SchemaId kSchema = SchemaId::step;
  static constexpr const char* kName = "step";
  int64_t step;
  int32_t rank, reserved;
};
static_assert(sizeof(Step) == 16);

/// Marked inside the step's range, before it ends. `tokens` of this rank's data-parallel replica; `loss` is the global
/// batch's mean language-model loss, NaN on ranks that do not have it; `grad_norm` is the global norm before clipping.
struct StepResult {
  static constexpr SchemaId kSchema = SchemaId::step_result;
  static constexpr const char* kName = "step_result";
  int64_t tokens;
  double loss, grad_norm;
};
static_assert(sizeof(StepResult) == 24);

/// Push/pop range of one microbatch's forward ('F'), backward ('B') or weight-gradient ('W') pass on one stage (0…pp-1;
/// `chunk` = virtual stage on this rank). Waiting for the neighbour's tensor is *not* inside this range.
struct Microbatch {
  static constexpr SchemaId kSchema = SchemaId::microbatch;
  static constexpr const char* kName = "microbatch";
  int64_t step;
  int32_t rank, microbatch, stage, chunk, pass, reserved;
};
static_assert(sizeof(Microbatch) == 32);

enum class CollectiveOp : int32_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  send,
  recv,
  barrier
};
enum class DType : int32_t { float32, bfloat16, float16, float64, int64, int32, uint8, int8, boolean };

/// What a transfer is for.
enum class Reason : int32_t {
  unknown,
  gradient,             // of parameters: reduction over the ranks that hold the same ones
  parameter,            // gathered before use, or updated shards handed back
  activation,           // forward pass: between layers, shards, stages or sequence chunks
  activation_gradient,  // the same paths in the backward pass
  loss,                 // the loss and what its softmax needs
  norm,                 // the gradients' norm, overflow flags
  token,                // samples from the rank that loads them
  routing,              // experts: how many rows go where, balance statistics
  optimizer_state,      // moments and master weights
  checkpoint,
  control,  // barriers and decisions that all must take alike
};

/// Start/end range of one collective or send/recv, from issue to completion. `bytes` = the full (unsharded) tensor: the
/// reduced tensor, the gathered output, the input of a reduce-scatter, the message of a send. `seq` counts the
/// operations of this group from 0 in issue order, equal on all members; for send/recv it counts messages per
/// (group, direction): seq = ordinal of the message from the sender to the receiver, `peer` = global rank of the
/// other side. (`tensor_id`, `tensor_version`) identify content: the same pair gathered twice was redundant; 0, 0 =
/// unknown. `peer` is -1 for collectives. Where it carries parameters or their gradients, [first_element, first_element
/// + elements) is their range in the rank's flat buffer of parameters; 0, 0 = does not apply.
struct Collective {
  static constexpr SchemaId kSchema = SchemaId::collective;
  static constexpr const char* kName = "collective";
  int64_t group_id, seq, bytes, tensor_id, tensor_version;
  int32_t rank, group_size, peer;
  CollectiveOp op;
  DType dtype;
  int32_t is_async;
  int64_t first_element, elements;
  Reason reason;
  int32_t reserved;
};
static_assert(sizeof(Collective) == 88);

/// Push/pop range while a thread blocks on collective (group_id, seq, op, peer).
struct CollectiveWait {
  static constexpr SchemaId kSchema = SchemaId::collective_wait;
  static constexpr const char* kName = "collective_wait";
  int64_t group_id, seq;
  int32_t rank, peer;
  CollectiveOp op;
  int32_t reserved;
};
static_assert(sizeof(CollectiveWait) == 32);

/// Marked where a gathered tensor is consumed: this rank read `bytes_used` of its `bytes_total`. A gather of which
/// every member only ever uses its own shard need not have happened.
struct TensorUse {
  static constexpr SchemaId kSchema = SchemaId::tensor_use;
  static constexpr const char* kName = "tensor_use";
  int64_t tensor_id, tensor_version, bytes_used, bytes_total;
  int32_t rank, reserved;
};
static_assert(sizeof(TensorUse) == 40);

/// Push/pop range while the trainer asks its loader for a microbatch. `workers` = loader processes (0 = inline),
/// `queue_depth` = batches ready when it asked.
struct BatchWait {
  static constexpr SchemaId kSchema = SchemaId::batch_wait;
  static constexpr const char* kName = "batch_wait";
  int64_t step;
  int32_t rank, microbatch, workers, queue_depth;
};
static_assert(sizeof(BatchWait) == 24);

/// Marked inside the BatchWait range when the batch has arrived. `sample_hash` is equal exactly when the samples are.
struct BatchResult {
  static constexpr SchemaId kSchema = SchemaId::batch_result;
  static constexpr const char* kName = "batch_result";
  uint64_t sample_hash;
  int64_t bytes;
  int32_t worker, reserved;
};
static_assert(sizeof(BatchResult) == 24);

enum class LoaderPhase : int32_t { read, tokenize, pack, hand_over, blocked };

/// Push/pop range of a loader worker's (or, inline, the trainer's) work on batch number `batch` of its rank. `read`
/// includes the emulated read latency; `blocked` = the queue was full; `hand_over` = copying into the ring or pipe.
struct LoaderWork {
  static constexpr SchemaId kSchema = SchemaId::loader_work;
  static constexpr const char* kName = "loader_work";
  int64_t batch;
  int32_t rank, worker, samples;
  LoaderPhase phase;
};
static_assert(sizeof(LoaderWork) == 24);

/// Push/pop range of the part of a checkpoint that blocks training.
struct Checkpoint {
  static constexpr SchemaId kSchema = SchemaId::checkpoint;
  static constexpr const char* kName = "checkpoint";
  int64_t step, bytes;
  int32_t rank, is_async;
};
static_assert(sizeof(Checkpoint) == 24);

/// Marked inside a step's range, once per expert and mixture-of-experts layer: how many of this rank's own tokens the
/// router sent to the expert in the step, and how many of those found no room there. Tensor-parallel ranks see the same
/// tokens: only the first of them marks.
struct ExpertLoad {
  static constexpr SchemaId kSchema = SchemaId::expert_load;
  static constexpr const char* kName = "expert_load";
  int64_t step, tokens, dropped;
  int32_t rank, layer, expert, reserved;
};
static_assert(sizeof(ExpertLoad) == 40);
/// Marked once per step, before it ends: bytes that the rank's tensors took at most at once within the step and take
/// now, what the allocator holds of the device, and the process's resident set. `device` is the CUDA ordinal, -1 on
/// CPU.
struct Memory {
  static constexpr SchemaId kSchema = SchemaId::memory;
  static constexpr const char* kName = "memory";
  int64_t peak, allocated, reserved, resident;
  int32_t rank, device;
};
static_assert(sizeof(Memory) == 40);

/// The domain handle; created on first use.
inline nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t handle = nvtxDomainCreateA(kDomainName);
  return handle;
}

/// A name registered once, so that the hot path passes a handle. Make it `static const`.
class Name {
 public:
  explicit Name(const char* text) : handle_(nvtxDomainRegisterStringA(domain(), text)) {}
  nvtxStringHandle_t handle() const { return handle_; }

 private:
  nvtxStringHandle_t handle_;
};

namespace detail {

inline nvtxEventAttributes_t attributes(nvtxStringHandle_t name) {
  nvtxEventAttributes_t a{};
  a.version = NVTX_VERSION;
  a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  a.message.registered = name;
  return a;
}

template <class Payload>
nvtxPayloadData_t payload_data(const Payload& payload) {
  return {static_cast<uint64_t>(Payload::kSchema), sizeof(Payload), &payload};
}

inline void attach(nvtxEventAttributes_t& a, const nvtxPayloadData_t& data) {
  a.payloadType = NVTX_PAYLOAD_TYPE_EXT;
  a.reserved0 = 1;  // one payload
  a.payload.ullValue = NVTX_POINTER_AS_PAYLOAD_ULLVALUE(&data);
}

}  // namespace detail

/// A push/pop range for the lifetime of the object.
class Range {
 public:
  explicit Range(const Name& name) {
    const auto a = detail::attributes(name.handle());
    nvtxDomainRangePushEx(domain(), &a);
  }
  template <class Payload>
  Range(const Name& name, const Payload& payload) {
    const auto data = detail::payload_data(payload);
    auto a = detail::attributes(name.handle());
    detail::attach(a, data);
    nvtxDomainRangePushEx(domain(), &a);
  }
  ~Range() { nvtxDomainRangePop(domain()); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

/// Marks a moment with a payload.
template <class Payload>
void mark(const Name& name, const Payload& payload) {
  const auto data = detail::payload_data(payload);
  auto a = detail::attributes(name.handle());
  detail::attach(a, data);
  nvtxDomainMarkEx(domain(), &a);
}

/// Starts a range that any thread may end with `end_range`.
template <class Payload>
nvtxRangeId_t start_range(const Name& name, const Payload& payload) {
  const auto data = detail::payload_data(payload);
  auto a = detail::attributes(name.handle());
  detail::attach(a, data);
  return nvtxDomainRangeStartEx(domain(), &a);
}

inline void end_range(nvtxRangeId_t id) {
  nvtxDomainRangeEnd(domain(), id);
}

}  // namespace taut::annotate
