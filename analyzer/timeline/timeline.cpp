#include "analyzer/timeline/timeline.h"

#include <algorithm>

namespace taut::timeline {

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::compute:
      return "compute";
    case Kind::communication:
      return "communication";
    case Kind::loader:
      return "loader";
    case Kind::copy:
      return "copy";
    case Kind::sync:
      return "sync";
    case Kind::checkpoint:
      return "checkpoint";
    case Kind::pipeline_wait:
      return "pipeline_wait";
    case Kind::host:
      return "host";
    case Kind::step:
      return "step";
    case Kind::other:
      break;
  }
  return "other";
}

const char* table_name(Table table) {
  switch (table) {
    case Table::nvtx:
      return "NVTX_EVENTS";
    case Table::kernel:
      return "CUPTI_ACTIVITY_KIND_KERNEL";
    case Table::memcpy:
      return "CUPTI_ACTIVITY_KIND_MEMCPY";
    case Table::memset:
      return "CUPTI_ACTIVITY_KIND_MEMSET";
    case Table::runtime:
      return "CUPTI_ACTIVITY_KIND_RUNTIME";
    case Table::step:
      return "TAUT_STEP";
    case Table::collective:
      return "TAUT_COLLECTIVE";
    case Table::microbatch:
      return "TAUT_MICROBATCH";
    case Table::batch:
      return "TAUT_BATCH";
    case Table::loader_work:
      return "TAUT_LOADER_WORK";
    case Table::tensor_use:
      return "TAUT_TENSOR_USE";
    case Table::expert:
      break;
  }
  return "TAUT_EXPERT";
}

const char* op_name(Op op) {
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
    case Op::unknown:
      break;
  }
  return "unknown";
}

const char* phase_name(LoaderPhase phase) {
  switch (phase) {
    case LoaderPhase::read:
      return "read";
    case LoaderPhase::tokenize:
      return "tokenize";
    case LoaderPhase::pack:
      return "pack";
    case LoaderPhase::hand_over:
      return "hand_over";
    case LoaderPhase::blocked:
      return "blocked";
    case LoaderPhase::unknown:
      break;
  }
  return "unknown";
}

const char* step_source_name(StepSource source) {
  switch (source) {
    case StepSource::taut:
      return "TAUT_STEP";
    case StepSource::profiler_step:
      return "ProfilerStep#";
    case StepSource::optimizer_step:
      return "Optimizer.step#";
    case StepSource::none:
      break;
  }
  return "none";
}

const Rank* Timeline::find_rank(int32_t rank) const {
  const auto found =
      std::lower_bound(ranks.begin(), ranks.end(), rank, [](const Rank& r, int32_t number) { return r.rank < number; });
  return found != ranks.end() && found->rank == rank ? &*found : nullptr;
}

std::string_view Timeline::config_json() const {
  const auto found = meta.find("config");
  return found == meta.end() ? std::string_view() : std::string_view(found->second);
}

}  // namespace taut::timeline
