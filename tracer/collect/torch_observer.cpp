#include "tracer/collect/torch_observer.h"

#include <ATen/record_function.h>
#include <nvtx3/nvToolsExt.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>

namespace taut::collect {
namespace {

nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t handle = nvtxDomainCreateA("PyTorch");
  return handle;
}

/// Operator names are few and their text seldom moves: a direct-mapped cache by address, checked by text, because an
/// address may come to hold another name (backward nodes' names are temporaries).
class NameCache {
 public:
  nvtxStringHandle_t handle(const char* name) {
    Entry& entry = entries_[(reinterpret_cast<uintptr_t>(name) >> 3) % entries_.size()];
    if (entry.address == name && std::strncmp(entry.text, name, kKept) == 0 && entry.whole) return entry.handle;
    const size_t length = std::strlen(name);
    entry.address = name;
    entry.handle = nvtxDomainRegisterStringA(domain(), name);
    entry.whole = length < kKept;
    std::strncpy(entry.text, name, kKept - 1);
    return entry.handle;
  }

 private:
  static constexpr size_t kKept = 48;
  struct Entry {
    const char* address = nullptr;
    nvtxStringHandle_t handle = nullptr;
    bool whole = false;  // longer names are registered again each time
    char text[kKept] = {};
  };
  std::array<Entry, 512> entries_;
};

NameCache& name_cache() {
  // On the heap: a thread that runs no operator pays a pointer.
  thread_local const auto cache = std::make_unique<NameCache>();
  return *cache;
}

std::unique_ptr<at::ObserverContext> begin_op(const at::RecordFunction& op) {
  nvtxEventAttributes_t a{};
  a.version = NVTX_VERSION;
  a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  a.message.registered = name_cache().handle(op.name());
  nvtxDomainRangePushEx(domain(), &a);
  return nullptr;
}

void end_op(const at::RecordFunction&, at::ObserverContext*) { nvtxDomainRangePop(domain()); }

}  // namespace

void install_torch_observer() {
  static std::once_flag once;
  std::call_once(once, [] {
    domain();
    at::addGlobalCallback(at::RecordFunctionCallback(begin_op, end_op)
                              .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  });
}

}  // namespace taut::collect
