#include "tracer/store/schema.h"

#include <array>

namespace taut::store {
namespace {

constexpr std::array<Table, kTableCount> kTables = {{
    {TableId::StringIds, "StringIds", "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL"},
    {TableId::NVTX_EVENTS, "NVTX_EVENTS",
     "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER, "
     "color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, "
     "uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, "
     "floatValue REAL, jsonTextId INTEGER, jsonText TEXT, binaryData TEXT"},
    {TableId::CUPTI_ACTIVITY_KIND_KERNEL, "CUPTI_ACTIVITY_KIND_KERNEL",
     "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, "
     "greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
     "demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, "
     "cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, "
     "gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, "
     "staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL, "
     "localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL, "
     "sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER, "
     "qmdBulkReleaseDone INTEGER, qmdPreexitDone INTEGER, qmdLastCtaDone INTEGER, graphId INTEGER, "
     "clusterX INTEGER, clusterY INTEGER, clusterZ INTEGER, clusterSchedulingPolicy INTEGER, "
     "maxPotentialClusterSize INTEGER, maxActiveClusters INTEGER, sharedMemoryRequestedPercentage INTEGER, "
     "tensorSizeMinusOneElements TEXT NOT NULL"},
    {TableId::CUPTI_ACTIVITY_KIND_MEMCPY, "CUPTI_ACTIVITY_KIND_MEMCPY",
     "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, "
     "greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
     "bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER, srcKind INTEGER, dstKind INTEGER, "
     "srcDeviceId INTEGER, srcContextId INTEGER, dstDeviceId INTEGER, dstContextId INTEGER, migrationCause INTEGER, "
     "graphNodeId INTEGER, virtualAddress INTEGER, copyCount INTEGER"},
    {TableId::CUPTI_ACTIVITY_KIND_MEMSET, "CUPTI_ACTIVITY_KIND_MEMSET",
     "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, "
     "greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
     "value INTEGER NOT NULL, bytes INTEGER NOT NULL, graphNodeId INTEGER, memKind INTEGER"},
    {TableId::CUPTI_ACTIVITY_KIND_RUNTIME, "CUPTI_ACTIVITY_KIND_RUNTIME",
     "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, "
     "correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER"},
    {TableId::CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
     "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, "
     "greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
     "deprecatedSyncType INTEGER, syncType INTEGER NOT NULL, eventId INTEGER NOT NULL, eventSyncId INTEGER"},
    {TableId::CUPTI_ACTIVITY_KIND_OVERHEAD, "CUPTI_ACTIVITY_KIND_OVERHEAD",
     "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, "
     "correlationId INTEGER, nameId INTEGER, overheadType INTEGER NOT NULL"},
    {TableId::ThreadNames, "ThreadNames", "nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER"},
    {TableId::PROCESSES, "PROCESSES", "globalPid INTEGER, pid INTEGER, name TEXT"},
    {TableId::TARGET_INFO_GPU, "TARGET_INFO_GPU",
     "vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, isDiscrete INTEGER, "
     "l2CacheSize INTEGER, totalMemory INTEGER, memoryBandwidth INTEGER, clockRate INTEGER, smCount INTEGER, "
     "pwGpuId INTEGER, uuid TEXT, luid INTEGER, chipName TEXT, cuDevice INTEGER, ctxswDevPath TEXT, "
     "ctrlDevPath TEXT, revision INTEGER, nodeMask INTEGER, constantMemory INTEGER, maxIPC INTEGER, "
     "maxRegistersPerBlock INTEGER, maxShmemPerBlock INTEGER, maxShmemPerBlockOptin INTEGER, maxShmemPerSm INTEGER, "
     "maxRegistersPerSm INTEGER, threadsPerWarp INTEGER, asyncEngines INTEGER, maxWarpsPerSm INTEGER, "
     "maxBlocksPerSm INTEGER, maxThreadsPerBlock INTEGER, maxBlockDimX INTEGER, maxBlockDimY INTEGER, "
     "maxBlockDimZ INTEGER, maxGridDimX INTEGER, maxGridDimY INTEGER, maxGridDimZ INTEGER, computeMajor INTEGER, "
     "computeMinor INTEGER, smMajor INTEGER, smMinor INTEGER"},
    {TableId::TARGET_INFO_SYSTEM_ENV, "TARGET_INFO_SYSTEM_ENV",
     "globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL, nameEnum INTEGER NOT NULL, "
     "value TEXT NOT NULL"},
    {TableId::TARGET_INFO_SESSION_START_TIME, "TARGET_INFO_SESSION_START_TIME",
     "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT, systemClockNs INTEGER"},
    {TableId::META_DATA_CAPTURE, "META_DATA_CAPTURE", "name TEXT NOT NULL, value TEXT"},
    {TableId::META_DATA_EXPORT, "META_DATA_EXPORT", "name TEXT NOT NULL, value TEXT"},
    {TableId::TAUT_META, "TAUT_META", "key TEXT NOT NULL, value TEXT"},
    {TableId::TAUT_RANK, "TAUT_RANK",
     "rank INTEGER NOT NULL, globalPid INTEGER NOT NULL, node INTEGER NOT NULL, dp INTEGER NOT NULL, "
     "tp INTEGER NOT NULL, pp INTEGER NOT NULL, cp INTEGER NOT NULL, ep INTEGER NOT NULL, device INTEGER NOT NULL"},
    {TableId::TAUT_STEP, "TAUT_STEP",
     "rank INTEGER NOT NULL, step INTEGER NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL, tokens INTEGER, "
     "loss REAL"},
    {TableId::TAUT_COLLECTIVE, "TAUT_COLLECTIVE",
     "eventId INTEGER NOT NULL, rank INTEGER NOT NULL, op TEXT NOT NULL, groupId INTEGER NOT NULL, "
     "groupSize INTEGER NOT NULL, seq INTEGER NOT NULL, bytes INTEGER NOT NULL, dtype TEXT NOT NULL, "
     "tensorId INTEGER NOT NULL, tensorVersion INTEGER NOT NULL, peer INTEGER NOT NULL, isAsync INTEGER NOT NULL, "
     "waitStart INTEGER, waitEnd INTEGER, reason TEXT, firstElement INTEGER, elements INTEGER"},
    {TableId::TAUT_MICROBATCH, "TAUT_MICROBATCH",
     "eventId INTEGER NOT NULL, rank INTEGER NOT NULL, step INTEGER NOT NULL, microbatch INTEGER NOT NULL, "
     "stage INTEGER NOT NULL, chunk INTEGER NOT NULL, pass TEXT NOT NULL"},
    {TableId::TAUT_BATCH, "TAUT_BATCH",
     "eventId INTEGER NOT NULL, rank INTEGER NOT NULL, step INTEGER NOT NULL, waitStart INTEGER NOT NULL, "
     "waitEnd INTEGER, workers INTEGER NOT NULL, queueDepth INTEGER NOT NULL, sampleHash INTEGER"},
    {TableId::TAUT_MEMORY, "TAUT_MEMORY",
     "globalPid INTEGER NOT NULL, time INTEGER NOT NULL, device INTEGER, allocated INTEGER, reserved INTEGER, "
     "rss INTEGER"},
    {TableId::TAUT_COUNTER, "TAUT_COUNTER",
     "id INTEGER NOT NULL PRIMARY KEY, time INTEGER NOT NULL, globalPid INTEGER, name TEXT NOT NULL, "
     "value REAL NOT NULL"},
    {TableId::TAUT_CLOCK, "TAUT_CLOCK",
     "node INTEGER NOT NULL, offsetNs INTEGER NOT NULL, errorNs INTEGER NOT NULL, method TEXT NOT NULL"},
    {TableId::TAUT_LOSS, "TAUT_LOSS", "globalPid INTEGER NOT NULL, lane TEXT NOT NULL, dropped INTEGER NOT NULL"},
    {TableId::TAUT_GROUP, "TAUT_GROUP", "groupId INTEGER NOT NULL, name TEXT NOT NULL, size INTEGER NOT NULL"},
    {TableId::TAUT_TENSOR_USE, "TAUT_TENSOR_USE",
     "eventId INTEGER NOT NULL, rank INTEGER NOT NULL, tensorId INTEGER NOT NULL, tensorVersion INTEGER NOT NULL, "
     "bytesUsed INTEGER NOT NULL, bytesTotal INTEGER NOT NULL"},
    {TableId::TAUT_LOADER_WORK, "TAUT_LOADER_WORK",
     "eventId INTEGER NOT NULL, rank INTEGER NOT NULL, worker INTEGER NOT NULL, batch INTEGER NOT NULL, "
     "samples INTEGER NOT NULL, phase TEXT NOT NULL"},
    {TableId::TAUT_EXPERT, "TAUT_EXPERT",
     "eventId INTEGER NOT NULL, rank INTEGER NOT NULL, step INTEGER NOT NULL, layer INTEGER NOT NULL, "
     "expert INTEGER NOT NULL, tokens INTEGER NOT NULL, dropped INTEGER NOT NULL"},
}};

constexpr bool in_order() {
  for (int i = 0; i < kTableCount; ++i)
    if (kTables[static_cast<size_t>(i)].id != static_cast<TableId>(i)) return false;
  return true;
}
static_assert(in_order());

constexpr EnumRow kEnumRows[] = {
    {"ENUM_NSYS_EVENT_TYPE", 33, "NvtxCategory", "NvtxCategory"},
    {"ENUM_NSYS_EVENT_TYPE", 34, "NvtxMark", "NvtxMark"},
    {"ENUM_NSYS_EVENT_TYPE", 39, "NvtxThread", "NvtxThread"},
    {"ENUM_NSYS_EVENT_TYPE", 59, "NvtxPushPopRange", "NvtxPushPopRange"},
    {"ENUM_NSYS_EVENT_TYPE", 60, "NvtxStartEndRange", "NvtxStartEndRange"},
    {"ENUM_NSYS_EVENT_TYPE", 75, "NvtxDomainCreate", "NvtxDomainCreate"},
    {"ENUM_NSYS_EVENT_TYPE", 76, "NvtxDomainDestroy", "NvtxDomainDestroy"},
    {"ENUM_NSYS_EVENT_TYPE", 99, "NvtxNameCudaStream", "NvtxNameCudaStream"},
    {"ENUM_NSYS_EVENT_CLASS", 0, "TRACE_PROCESS_EVENT_CUDA_RUNTIME", "CUDA runtime"},
    {"ENUM_NSYS_EVENT_CLASS", 1, "TRACE_PROCESS_EVENT_CUDA_DRIVER", "CUDA driver"},
    {"ENUM_CUDA_MEMCPY_OPER", 0, "CUDA_MEMCPY_KIND_UNKNOWN", "Unknown"},
    {"ENUM_CUDA_MEMCPY_OPER", 1, "CUDA_MEMCPY_KIND_HTOD", "Host-to-Device"},
    {"ENUM_CUDA_MEMCPY_OPER", 2, "CUDA_MEMCPY_KIND_DTOH", "Device-to-Host"},
    {"ENUM_CUDA_MEMCPY_OPER", 3, "CUDA_MEMCPY_KIND_HTOA", "Host-to-Array"},
    {"ENUM_CUDA_MEMCPY_OPER", 4, "CUDA_MEMCPY_KIND_ATOH", "Array-to-Host"},
    {"ENUM_CUDA_MEMCPY_OPER", 5, "CUDA_MEMCPY_KIND_ATOA", "Array-to-Array"},
    {"ENUM_CUDA_MEMCPY_OPER", 6, "CUDA_MEMCPY_KIND_ATOD", "Array-to-Device"},
    {"ENUM_CUDA_MEMCPY_OPER", 7, "CUDA_MEMCPY_KIND_DTOA", "Device-to-Array"},
    {"ENUM_CUDA_MEMCPY_OPER", 8, "CUDA_MEMCPY_KIND_DTOD", "Device-to-Device"},
    {"ENUM_CUDA_MEMCPY_OPER", 9, "CUDA_MEMCPY_KIND_HTOH", "Host-to-Host"},
    {"ENUM_CUDA_MEMCPY_OPER", 10, "CUDA_MEMCPY_KIND_PTOP", "Peer-to-Peer"},
    {"ENUM_CUDA_MEMCPY_OPER", 11, "CUDA_MEMCPY_KIND_UVM_HTOD", "Unified Host-to-Device"},
    {"ENUM_CUDA_MEMCPY_OPER", 12, "CUDA_MEMCPY_KIND_UVM_DTOH", "Unified Device-to-Host"},
    {"ENUM_CUDA_MEMCPY_OPER", 13, "CUDA_MEMCPY_KIND_UVM_DTOD", "Unified Device-to-Device"},
    {"ENUM_CUDA_MEM_KIND", 0, "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE", "Pageable"},
    {"ENUM_CUDA_MEM_KIND", 1, "CUDA_MEMOPR_MEMORY_KIND_PINNED", "Pinned"},
    {"ENUM_CUDA_MEM_KIND", 2, "CUDA_MEMOPR_MEMORY_KIND_DEVICE", "Device"},
    {"ENUM_CUDA_MEM_KIND", 3, "CUDA_MEMOPR_MEMORY_KIND_ARRAY", "Array"},
    {"ENUM_CUDA_MEM_KIND", 4, "CUDA_MEMOPR_MEMORY_KIND_MANAGED", "Managed"},
    {"ENUM_CUDA_MEM_KIND", 5, "CUDA_MEMOPR_MEMORY_KIND_DEVICE_STATIC", "Device Static"},
    {"ENUM_CUDA_MEM_KIND", 6, "CUDA_MEMOPR_MEMORY_KIND_MANAGED_STATIC", "Managed Static"},
    {"ENUM_CUDA_MEM_KIND", 7, "CUDA_MEMOPR_MEMORY_KIND_UNKNOWN", "Unknown"},
    {"ENUM_CUPTI_SYNC_TYPE", 0, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_UNKNOWN", "Unknown"},
    {"ENUM_CUPTI_SYNC_TYPE", 1, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE", "Event sync"},
    {"ENUM_CUPTI_SYNC_TYPE", 2, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT", "Stream wait sync"},
    {"ENUM_CUPTI_SYNC_TYPE", 3, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE", "Stream sync"},
    {"ENUM_CUPTI_SYNC_TYPE", 4, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE", "Context sync"},
    {"ENUM_CUPTI_OVERHEAD_TYPE", 0, "OVERHEAD_UNDEFINED", "Undefined"},
    {"ENUM_CUPTI_OVERHEAD_TYPE", 1, "OVERHEAD_UNKNOWN", "Unknown"},
    {"ENUM_CUPTI_OVERHEAD_TYPE", 2, "OVERHEAD_DRIVER_COMPILER", "Driver JIT compiler (CUDA)"},
    {"ENUM_CUPTI_OVERHEAD_TYPE", 3, "OVERHEAD_CUPTI_BUFFER_FLUSH", "Buffer flush (Profiler)"},
    {"ENUM_CUPTI_OVERHEAD_TYPE", 4, "OVERHEAD_CUPTI_INSTRUMENTATION", "Instrumentation (Profiler)"},
    {"ENUM_CUPTI_OVERHEAD_TYPE", 5, "OVERHEAD_CUPTI_RESOURCE", "Resource creation/destruction (Profiler)"},
    {"ENUM_CUPTI_OVERHEAD_TYPE", 6, "OVERHEAD_RUNTIME_TRIGGERED_MODULE_LOADING", "Runtime module loading (CUDA)"},
    {"ENUM_CUPTI_OVERHEAD_TYPE", 7, "OVERHEAD_LAZY_FUNCTION_LOADING", "Lazy function loading (CUDA)"},
    {"ENUM_CUPTI_OVERHEAD_TYPE", 8, "OVERHEAD_COMMAND_BUFFER_FULL", "Command buffer full (CUDA)"},
    {"ENUM_CUDA_KERNEL_LAUNCH_TYPE", 0, "CUDA_KERNEL_LAUNCH_TYPE_UNKNOWN", "Unknown"},
    {"ENUM_CUDA_KERNEL_LAUNCH_TYPE", 1, "CUDA_KERNEL_LAUNCH_TYPE_REGULAR", "Regular"},
    {"ENUM_CUDA_KERNEL_LAUNCH_TYPE", 2, "CUDA_KERNEL_LAUNCH_TYPE_COOPERATIVE_SINGLE_DEVICE", "Coop Single Device"},
    {"ENUM_CUDA_KERNEL_LAUNCH_TYPE", 3, "CUDA_KERNEL_LAUNCH_TYPE_COOPERATIVE_MULTI_DEVICE", "Coop Multi Device"},
};

}  // namespace

std::span<const Table> tables() {
  return kTables;
}

const Table& table(TableId id) {
  return kTables.at(static_cast<size_t>(id));
}

std::optional<TableId> find_table(std::string_view name) {
  for (const Table& table : kTables)
    if (name == table.name) return table.id;
  return std::nullopt;
}

std::vector<std::string> column_names(const Table& table) {
  std::vector<std::string> names;
  std::string_view left = table.columns;
  while (!left.empty()) {
    const size_t comma = left.find(',');
    const std::string_view column = left.substr(0, comma);
    names.emplace_back(column.substr(0, column.find(' ')));
    left = comma == std::string_view::npos ? std::string_view{} : left.substr(comma + 2);  // ", "
  }
  return names;
}

std::span<const EnumRow> enum_rows() {
  return kEnumRows;
}

}  // namespace taut::store
