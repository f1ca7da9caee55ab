#include "tracer/collect/nvtx_tables.h"

#include "tracer/collect/recorder.h"
#include "tracer/collect/utf8.h"

namespace taut::collect {
namespace {

using recorder::domain_index;

// The default domain's calls.
void mark_ex(const nvtxEventAttributes_t* a) {
  recorder::mark({.attributes = a});
}
void mark_a(const char* text) {
  recorder::mark({.text = text});
}
void mark_w(const wchar_t* text) {
  mark_a(to_utf8(text).c_str());
}
nvtxRangeId_t range_start_ex(const nvtxEventAttributes_t* a) {
  return recorder::start_range({.attributes = a});
}
nvtxRangeId_t range_start_a(const char* text) {
  return recorder::start_range({.text = text});
}
nvtxRangeId_t range_start_w(const wchar_t* text) {
  return range_start_a(to_utf8(text).c_str());
}
void range_end(nvtxRangeId_t id) {
  recorder::end_range(id);
}
int range_push_ex(const nvtxEventAttributes_t* a) {
  return recorder::push({.attributes = a});
}
int range_push_a(const char* text) {
  return recorder::push({.text = text});
}
int range_push_w(const wchar_t* text) {
  return range_push_a(to_utf8(text).c_str());
}
int range_pop() {
  return recorder::pop(0);
}
void name_category_a(uint32_t category, const char* name) {
  recorder::name_category(0, category, name);
}
void name_category_w(uint32_t category, const wchar_t* name) {
  name_category_a(category, to_utf8(name).c_str());
}
void name_os_thread_a(uint32_t tid, const char* name) {
  recorder::name_thread(tid, name);
}
void name_os_thread_w(uint32_t tid, const wchar_t* name) {
  name_os_thread_a(tid, to_utf8(name).c_str());
}

// The same with a domain.
void domain_mark_ex(nvtxDomainHandle_t d, const nvtxEventAttributes_t* a) {
  recorder::mark({.domain = domain_index(d), .attributes = a});
}
nvtxRangeId_t domain_range_start_ex(nvtxDomainHandle_t d, const nvtxEventAttributes_t* a) {
  return recorder::start_range({.domain = domain_index(d), .attributes = a});
}
void domain_range_end(nvtxDomainHandle_t, nvtxRangeId_t id) {
  recorder::end_range(id);
}
int domain_range_push_ex(nvtxDomainHandle_t d, const nvtxEventAttributes_t* a) {
  return recorder::push({.domain = domain_index(d), .attributes = a});
}
int domain_range_pop(nvtxDomainHandle_t d) {
  return recorder::pop(domain_index(d));
}
void domain_name_category_a(nvtxDomainHandle_t d, uint32_t category, const char* name) {
  recorder::name_category(domain_index(d), category, name);
}
void domain_name_category_w(nvtxDomainHandle_t d, uint32_t category, const wchar_t* name) {
  domain_name_category_a(d, category, to_utf8(name).c_str());
}
nvtxStringHandle_t register_string_a(nvtxDomainHandle_t, const char* text) {
  return recorder::name_handle(recorder::intern(text));
}
nvtxStringHandle_t register_string_w(nvtxDomainHandle_t d, const wchar_t* text) {
  return register_string_a(d, to_utf8(text).c_str());
}
nvtxDomainHandle_t domain_create_a(const char* name) {
  return recorder::domain_handle(recorder::create_domain(name));
}
nvtxDomainHandle_t domain_create_w(const wchar_t* name) {
  return domain_create_a(to_utf8(name).c_str());
}
void domain_destroy(nvtxDomainHandle_t) {}
void initialize(const void*) {}

/// NVTX hands out pointers to its function pointers, by callback id; older copies have shorter tables.
class Module {
 public:
  Module(const NvtxExportTableCallbacks& callbacks, NvtxCallbackModule module) {
    if (!callbacks.GetModuleFunctionTable(module, &table_, &size_)) size_ = 0;
  }
  bool empty() const { return size_ == 0; }
  template <class Function>
  void set(unsigned id, Function* function) const {
    if (id < size_ && table_[id]) *table_[id] = reinterpret_cast<NvtxFunctionPointer>(function);
  }

 private:
  NvtxFunctionTable table_ = nullptr;
  unsigned size_ = 0;
};

}  // namespace

bool attach_to_nvtx(NvtxGetExportTableFunc_t get_export_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  if (!callbacks || callbacks->struct_size < sizeof(NvtxExportTableCallbacks)) return false;
  const Module core(*callbacks, NVTX_CB_MODULE_CORE), core2(*callbacks, NVTX_CB_MODULE_CORE2);
  if (core.empty() || core2.empty()) return false;

  core.set(NVTX_CBID_CORE_MarkEx, mark_ex);
  core.set(NVTX_CBID_CORE_MarkA, mark_a);
  core.set(NVTX_CBID_CORE_MarkW, mark_w);
  core.set(NVTX_CBID_CORE_RangeStartEx, range_start_ex);
  core.set(NVTX_CBID_CORE_RangeStartA, range_start_a);
  core.set(NVTX_CBID_CORE_RangeStartW, range_start_w);
  core.set(NVTX_CBID_CORE_RangeEnd, range_end);
  core.set(NVTX_CBID_CORE_RangePushEx, range_push_ex);
  core.set(NVTX_CBID_CORE_RangePushA, range_push_a);
  core.set(NVTX_CBID_CORE_RangePushW, range_push_w);
  core.set(NVTX_CBID_CORE_RangePop, range_pop);
  core.set(NVTX_CBID_CORE_NameCategoryA, name_category_a);
  core.set(NVTX_CBID_CORE_NameCategoryW, name_category_w);
  core.set(NVTX_CBID_CORE_NameOsThreadA, name_os_thread_a);
  core.set(NVTX_CBID_CORE_NameOsThreadW, name_os_thread_w);

  core2.set(NVTX_CBID_CORE2_DomainMarkEx, domain_mark_ex);
  core2.set(NVTX_CBID_CORE2_DomainRangeStartEx, domain_range_start_ex);
  core2.set(NVTX_CBID_CORE2_DomainRangeEnd, domain_range_end);
  core2.set(NVTX_CBID_CORE2_DomainRangePushEx, domain_range_push_ex);
  core2.set(NVTX_CBID_CORE2_DomainRangePop, domain_range_pop);
  core2.set(NVTX_CBID_CORE2_DomainNameCategoryA, domain_name_category_a);
  core2.set(NVTX_CBID_CORE2_DomainNameCategoryW, domain_name_category_w);
  core2.set(NVTX_CBID_CORE2_DomainRegisterStringA, register_string_a);
  core2.set(NVTX_CBID_CORE2_DomainRegisterStringW, register_string_w);
  core2.set(NVTX_CBID_CORE2_DomainCreateA, domain_create_a);
  core2.set(NVTX_CBID_CORE2_DomainCreateW, domain_create_w);
  core2.set(NVTX_CBID_CORE2_DomainDestroy, domain_destroy);
  core2.set(NVTX_CBID_CORE2_Initialize, initialize);
  return true;
}

}  // namespace taut::collect
