// From a typed payload of domain "taut" (tracer/annotate) to its row in a TAUT_* table.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "tracer/annotate/annotate.h"
#include "tracer/store/writer.h"

namespace taut::collect {

/// torch's names, as the TAUT_* tables store them; "?" for a number that the vocabulary does not have.
const char* name_of(annotate::CollectiveOp op);
const char* name_of(annotate::DType dtype);
const char* name_of(annotate::LoaderPhase phase);
const char* name_of(annotate::Reason reason);

/// The payload as its struct, or nothing if it is of another schema or too short.
template <class P>
std::optional<P> decode(uint64_t schema, std::span<const unsigned char> bytes) {
  if (schema != static_cast<uint64_t>(P::kSchema) || bytes.size() < sizeof(P)) return std::nullopt;
  P payload;
  std::memcpy(&payload, bytes.data(), sizeof(P));
  return payload;
}

/// Rows. Times are since the session start; `event` is the NVTX_EVENTS rowid.
void store_rank(store::Writer& writer, int64_t global_pid, const annotate::Rank& rank);
void store_step(store::Writer& writer, int64_t start, int64_t end, const annotate::Step& step,
                const std::optional<annotate::StepResult>& result);
void store_microbatch(store::Writer& writer, int64_t event, const annotate::Microbatch& microbatch);
/// Returns the row's rowid, for its wait.
int64_t store_collective(store::Writer& writer, int64_t event, const annotate::Collective& collective);
void store_tensor_use(store::Writer& writer, int64_t event, const annotate::TensorUse& use);
void store_expert(store::Writer& writer, int64_t event, const annotate::ExpertLoad& load);
void store_batch(store::Writer& writer, int64_t event, int64_t start, int64_t end, const annotate::BatchWait& wait,
                 const std::optional<annotate::BatchResult>& result);
void store_loader_work(store::Writer& writer, int64_t event, const annotate::LoaderWork& work);

/// The row's `allocated` is the peak: what the step needed at once, wherever in the step that was.
void store_memory(store::Writer& writer, int64_t global_pid, int64_t time, const annotate::Memory& memory);

/// nsys' form of an extended payload in NVTX_EVENTS.binaryData: a 32-byte header (domain, schema, sizes), then the
/// bytes.
using BinaryHeader = std::array<unsigned char, 32>;
BinaryHeader binary_header(int64_t domain, uint64_t schema, uint64_t bytes);

}  // namespace taut::collect
