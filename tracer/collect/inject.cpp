// Entry point of libtaut_inject.so: NVTX loads the library that $NVTX_INJECTION64_PATH names and calls this once for
// each copy of NVTX in the process. 0 means "no tool": NVTX then turns every annotation into nothing.
#include "tracer/collect/nvtx_tables.h"
#include "tracer/collect/recorder.h"

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_export_table) {
  if (!taut::collect::recorder::start()) return 0;
  return taut::collect::attach_to_nvtx(get_export_table) ? 1 : 0;
}
