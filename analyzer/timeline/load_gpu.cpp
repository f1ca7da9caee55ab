// CUPTI_ACTIVITY_KIND_*: GPU work by stream, CUDA calls by thread.
#include <algorithm>

#include "analyzer/timeline/classification.h"
#include "analyzer/timeline/loading.h"
#include "tracer/store/ids.h"

namespace taut::timeline {
namespace {

const char* copy_name(int64_t copy_kind) {
  switch (copy_kind) {  // ENUM_CUDA_MEMCPY_OPER
    case 1:
      return "memcpy HtoD";
    case 2:
      return "memcpy DtoH";
    case 8:
      return "memcpy DtoD";
    case 10:
      return "memcpy PtoP";
    default:
      return "memcpy";
  }
}

LaneKey stream_lane(const store::Rows& rows, int device, int stream, int pid) {
  return {LaneType::gpu_stream, store::global_pid_of(rows.integer(pid)), static_cast<int32_t>(rows.integer(device)),
          static_cast<int32_t>(rows.integer(stream))};
}

void read_kernels(Draft& draft) {
  auto rows = draft.reader.rows("CUPTI_ACTIVITY_KIND_KERNEL", {"start", "end", "deviceId", "streamId", "globalPid",
                                                               "correlationId", "shortName", "demangledName"});
  while (rows.next()) {
    const int64_t start = rows.integer(0), end = rows.integer(1);
    if (rows.is_null(0) || rows.is_null(1) || !Draft::sensible(start, end)) {
      draft.reject();
      continue;
    }
    RawSlice slice{.start = start, .end = end, .rowid = rows.rowid(), .correlation = rows.integer(5, -1)};
    slice.name = draft.names.intern_id(rows.is_null(6) ? rows.integer(7) : rows.integer(6));
    slice.kind = classify_kernel(draft.timeline.names[slice.name]);
    slice.table = Table::kernel;
    draft.slices[stream_lane(rows, 2, 3, 4)].push_back(slice);
  }
}

void read_copies(Draft& draft, const char* table, bool is_memset) {
  auto rows =
      draft.reader.rows(table, {"start", "end", "deviceId", "streamId", "globalPid", "correlationId", "copyKind"});
  while (rows.next()) {
    const int64_t start = rows.integer(0), end = rows.integer(1);
    if (rows.is_null(0) || rows.is_null(1) || !Draft::sensible(start, end)) {
      draft.reject();
      continue;
    }
    RawSlice slice{.start = start, .end = end, .rowid = rows.rowid(), .correlation = rows.integer(5, -1)};
    slice.name = draft.names.intern(is_memset ? "memset" : copy_name(rows.integer(6)));
    slice.kind = is_memset ? Kind::compute : Kind::copy;  // a memset fills memory with the SMs: device work
    slice.table = is_memset ? Table::memset : Table::memcpy;
    draft.slices[stream_lane(rows, 2, 3, 4)].push_back(slice);
  }
}

void read_cuda_calls(Draft& draft) {
  auto rows =
      draft.reader.rows("CUPTI_ACTIVITY_KIND_RUNTIME", {"start", "end", "globalTid", "correlationId", "nameId"});
  while (rows.next()) {
    const int64_t start = rows.integer(0), end = rows.integer(1);
    if (rows.is_null(0) || rows.is_null(1) || !Draft::sensible(start, end)) {
      draft.reject();
      continue;
    }
    RawSlice slice{.start = start, .end = end, .rowid = rows.rowid(), .correlation = rows.integer(3, -1)};
    slice.name = draft.names.intern_id(rows.integer(4));
    slice.kind = classify_cuda_call(draft.timeline.names[slice.name]);
    slice.table = Table::runtime;
    draft.slices[{LaneType::cuda_api, rows.integer(2)}].push_back(slice);
  }
}

}  // namespace

void read_gpu(Draft& draft) {
  read_kernels(draft);
  read_copies(draft, "CUPTI_ACTIVITY_KIND_MEMCPY", false);
  read_copies(draft, "CUPTI_ACTIVITY_KIND_MEMSET", true);
  read_cuda_calls(draft);
}

}  // namespace taut::timeline
