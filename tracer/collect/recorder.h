// Turns NVTX calls into ring records: nesting, step window, threads, fork. The state behind it is the process's own, as
// NVTX is; there is one recorder in a process. Every function may be called from any thread, and allocates, locks or
// enters the kernel only the first time that a thread, name or domain is seen.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include <cstdint>

namespace taut::collect::recorder {

/// Starts recording into $TAUT_TRACE_DIR, only within $TAUT_TRACE_STEPS ("A:B", half-open) if that is set. False if
/// tracing was not asked for or cannot work (a line on stderr says why). Further calls do nothing.
bool start();

/// Domains and names as the indices that records hold; 0 = default domain, no name.
uint16_t create_domain(const char* name);
uint32_t intern(const char* name);
void name_category(uint16_t domain, uint32_t category, const char* name);
void name_thread(uint32_t tid, const char* name);

/// What an event says, as NVTX passes it. `text` is used where there are no attributes.
struct Event {
  uint16_t domain = 0;
  const nvtxEventAttributes_t* attributes = nullptr;
  const char* text = nullptr;
};
/// The depth of the new range in this thread and domain, from 0.
int push(const Event& event);
/// The depth of the closed range; negative when none is open.
int pop(uint16_t domain);
uint64_t start_range(const Event& event);
void end_range(uint64_t id);
void mark(const Event& event);

/// Handles that NVTX gives to the program carry the indices themselves.
inline nvtxDomainHandle_t domain_handle(uint16_t domain) {
  return reinterpret_cast<nvtxDomainHandle_t>(uintptr_t{domain} + 1);
}
inline uint16_t domain_index(nvtxDomainHandle_t handle) {
  return handle ? static_cast<uint16_t>(reinterpret_cast<uintptr_t>(handle) - 1) : uint16_t{0};
}
inline constexpr uintptr_t kNameHandleBit = uintptr_t{1} << 40;  // a name that was lost (0) still has a handle
inline nvtxStringHandle_t name_handle(uint32_t name) {
  return reinterpret_cast<nvtxStringHandle_t>(kNameHandleBit | name);
}
inline uint32_t name_index(nvtxStringHandle_t handle) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(handle));
}

}  // namespace taut::collect::recorder
