#include "tracer/collect/torch_observer.h"

#include <ATen/record_function.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <string_view>

namespace taut::collect {
namespace {

/// Operators that only describe or reserve memory. They are most of the calls and next to none of the time; leaving
/// them out keeps tracing under its cost bound. Sorted.
constexpr std::string_view kLeftOut[] = {
    "aten::_reshape_alias",
    "aten::_unsafe_view",
    "aten::alias",
    "aten::as_strided",
    "aten::broadcast_to",
    "aten::chunk",
    "aten::contiguous",
    "aten::detach",
    "aten::detach_",
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::expand",
    "aten::expand_as",
    "aten::flatten",
    "aten::is_nonzero",
    "aten::narrow",
    "aten::numpy_T",
    "aten::permute",
    "aten::reshape",
    "aten::resize_",
    "aten::resolve_conj",
    "aten::resolve_neg",
    "aten::result_type",
    "aten::select",
    "aten::set_",
    "aten::set_data",
    "aten::slice",
    "aten::split",
    "aten::split_with_sizes",
    "aten::squeeze",
    "aten::squeeze_",
    "aten::t",
    "aten::t_",
    "aten::transpose",
    "aten::transpose_",
    "aten::unbind",
    "aten::unflatten",
    "aten::unsqueeze",
    "aten::unsqueeze_",
    "aten::view",
    "aten::view_as",
    "detach",
    "detach_",
};
static_assert(std::is_sorted(std::begin(kLeftOut), std::end(kLeftOut)));

/// The engine's range around each backward node, which has one of its own.
constexpr std::string_view kEngineWrapper = "autograd::engine::evaluate_function: ";

bool left_out(std::string_view name) {
  return name.starts_with(kEngineWrapper) || std::binary_search(std::begin(kLeftOut), std::end(kLeftOut), name);
}

nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t handle = nvtxDomainCreateA("PyTorch");
  return handle;
}

/// Operator names are few and their text seldom moves: a direct-mapped cache by address, checked by text, because an
/// address may come to hold another name (backward nodes' names are temporaries).
class NameCache {
 public:
  struct Entry {
    static constexpr size_t kKept = 64;
    const char* address = nullptr;
    nvtxStringHandle_t handle = nullptr;
    bool left_out = false;
    bool whole = false;  // longer names are looked up anew each time
    char text[kKept] = {};
  };

  const Entry& find(const char* name) {
    Entry& entry = entries_[(reinterpret_cast<uintptr_t>(name) >> 3) % entries_.size()];
    if (entry.address == name && entry.whole && std::strcmp(entry.text, name) == 0) return entry;
    entry.address = name;
    entry.left_out = left_out(name);
    entry.handle = entry.left_out ? nullptr : nvtxDomainRegisterStringA(domain(), name);
    entry.whole = std::strlen(name) < Entry::kKept;
    std::strncpy(entry.text, name, Entry::kKept - 1);
    return entry;
  }

 private:
  std::array<Entry, 512> entries_;
};

NameCache& name_cache() {
  // On the heap: a thread that runs no operator pays a pointer.
  thread_local const auto cache = std::make_unique<NameCache>();
  return *cache;
}

std::unique_ptr<at::ObserverContext> begin_op(const at::RecordFunction& op) {
  const NameCache::Entry& name = name_cache().find(op.name());
  if (name.left_out) return nullptr;
  nvtxEventAttributes_t a{};
  a.version = NVTX_VERSION;
  a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  a.message.registered = name.handle;
  nvtxDomainRangePushEx(domain(), &a);
  return nullptr;
}

void end_op(const at::RecordFunction& op, at::ObserverContext*) {
  if (!name_cache().find(op.name()).left_out) nvtxDomainRangePop(domain());
}

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
