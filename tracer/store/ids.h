// nsys' packed ids: globalTid = machine | pid | tid, globalPid = the same with tid 0. Machine numbers start at 1.
#pragma once

#include <cstdint>

namespace taut::store {

inline constexpr int64_t kPidUnit = 0x1000000;                // one pid step in a globalTid
inline constexpr int64_t kMachineUnit = kPidUnit * kPidUnit;  // one machine step

/// `node` counts from 0; pid and tid are below 2^24 (Linux allows at most 2^22).
constexpr int64_t global_tid(int64_t node, int64_t pid, int64_t tid) {
  return (node + 1) * kMachineUnit + (pid % kPidUnit) * kPidUnit + tid % kPidUnit;
}
constexpr int64_t global_pid(int64_t node, int64_t pid) {
  return global_tid(node, pid, 0);
}

constexpr int64_t pid_of(int64_t global_id) {
  return global_id / kPidUnit % kPidUnit;
}
constexpr int64_t tid_of(int64_t global_tid) {
  return global_tid % kPidUnit;
}
constexpr int64_t global_pid_of(int64_t global_tid) {
  return global_tid - tid_of(global_tid);
}

}  // namespace taut::store
