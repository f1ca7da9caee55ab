#include "tracer/collect/payloads.h"

#include <cmath>
#include <string>

namespace taut::collect {

using store::TableId;
using store::Value;

const char* name_of(annotate::CollectiveOp op) {
  using Op = annotate::CollectiveOp;
  switch (op) {
    case Op::all_reduce:
      return "all_reduce";
    case Op::all_gather:
      return "all_gather";
    case Op::reduce_scatter:
      return "reduce_scatter";
    case Op::broadcast:
      return "broadcast";
    case Op::all_to_all:
      return "all_to_all";
    case Op::send:
      return "send";
    case Op::recv:
      return "recv";
    case Op::barrier:
      return "barrier";
  }
  return "?";
}

const char* name_of(annotate::DType dtype) {
  using T = annotate::DType;
  switch (dtype) {
    case T::float32:
      return "float32";
    case T::bfloat16:
      return "bfloat16";
    case T::float16:
      return "float16";
    case T::float64:
      return "float64";
    case T::int64:
      return "int64";
    case T::int32:
      return "int32";
    case T::uint8:
      return "uint8";
    case T::int8:
      return "int8";
    case T::boolean:
      return "bool";
  }
  return "?";
}

const char* name_of(annotate::LoaderPhase phase) {
  using P = annotate::LoaderPhase;
  switch (phase) {
    case P::read:
      return "read";
    case P::tokenize:
      return "tokenize";
    case P::pack:
      return "pack";
    case P::hand_over:
      return "hand_over";
    case P::blocked:
      return "blocked";
  }
  return "?";
}

const char* name_of(annotate::Reason reason) {
  using R = annotate::Reason;
  switch (reason) {
    case R::unknown:
      return "unknown";
    case R::gradient:
      return "gradient";
    case R::parameter:
      return "parameter";
    case R::activation:
      return "activation";
    case R::activation_gradient:
      return "activation_gradient";
    case R::loss:
      return "loss";
    case R::norm:
      return "norm";
    case R::token:
      return "token";
    case R::routing:
      return "routing";
    case R::optimizer_state:
      return "optimizer_state";
    case R::checkpoint:
      return "checkpoint";
    case R::control:
      return "control";
  }
  return "?";
}

void store_rank(store::Writer& writer, int64_t global_pid, const annotate::Rank& r) {
  writer.create(TableId::TAUT_RANK);
  // A restarted rank replaces the process that died: one row a rank.
  writer.execute("DELETE FROM TAUT_RANK WHERE rank=?", {r.rank});
  writer.insert(TableId::TAUT_RANK, {r.rank, global_pid, r.node, r.dp, r.tp, r.pp, r.cp, r.ep, r.device});
}

void store_step(store::Writer& writer, int64_t start, int64_t end, const annotate::Step& step,
                const std::optional<annotate::StepResult>& result) {
  const bool has_loss = result && !std::isnan(result->loss);
  writer.insert(TableId::TAUT_STEP, {step.rank, step.step, start, end, result ? Value(result->tokens) : Value(),
                                     has_loss ? Value(result->loss) : Value()});
}

void store_microbatch(store::Writer& writer, int64_t event, const annotate::Microbatch& m) {
  const char pass[] = {m.pass >= ' ' && m.pass <= '~' ? static_cast<char>(m.pass) : '?', '\0'};
  writer.insert(TableId::TAUT_MICROBATCH, {event, m.rank, m.step, m.microbatch, m.stage, m.chunk, pass});
}

int64_t store_collective(store::Writer& writer, int64_t event, const annotate::Collective& c) {
  return writer.insert(TableId::TAUT_COLLECTIVE,
                       {event, c.rank, name_of(c.op), c.group_id, c.group_size, c.seq, c.bytes, name_of(c.dtype),
                        c.tensor_id, c.tensor_version, c.peer, c.is_async, /*waitStart=*/Value(), /*waitEnd=*/Value(),
                        name_of(c.reason), c.first_element, c.elements});
}

void store_tensor_use(store::Writer& writer, int64_t event, const annotate::TensorUse& u) {
  writer.insert(TableId::TAUT_TENSOR_USE, {event, u.rank, u.tensor_id, u.tensor_version, u.bytes_used, u.bytes_total});
}

void store_expert(store::Writer& writer, int64_t event, const annotate::ExpertLoad& e) {
  writer.insert(TableId::TAUT_EXPERT, {event, e.rank, e.step, e.layer, e.expert, e.tokens, e.dropped});
}

void store_batch(store::Writer& writer, int64_t event, int64_t start, int64_t end, const annotate::BatchWait& w,
                 const std::optional<annotate::BatchResult>& result) {
  writer.insert(TableId::TAUT_BATCH, {event, w.rank, w.step, start, end, w.workers, w.queue_depth,
                                      result ? Value(result->sample_hash) : Value()});
}

void store_loader_work(store::Writer& writer, int64_t event, const annotate::LoaderWork& w) {
  writer.insert(TableId::TAUT_LOADER_WORK, {event, w.rank, w.worker, w.batch, w.samples, name_of(w.phase)});
}

void store_memory(store::Writer& writer, int64_t global_pid, int64_t time, const annotate::Memory& m) {
  writer.insert(TableId::TAUT_MEMORY, {global_pid, time, m.device, m.peak, m.reserved, m.resident});
}

BinaryHeader binary_header(int64_t domain, uint64_t schema, uint64_t bytes) {
  struct {
    uint32_t domain, flags;
    uint32_t schema, schema_flags;
    uint64_t payload_bytes, total_bytes;
  } const header = {static_cast<uint32_t>(domain), 0, static_cast<uint32_t>(schema), 0, bytes, bytes};
  static_assert(sizeof header == sizeof(BinaryHeader));
  BinaryHeader out;
  std::memcpy(out.data(), &header, sizeof header);
  return out;
}

}  // namespace taut::collect
