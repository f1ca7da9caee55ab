// The NVTX side of the injection library: which of our functions answers which NVTX entry point.
#pragma once

#include <nvtx3/nvToolsExt.h>

namespace taut::collect {

/// Puts our functions into the CORE and CORE2 tables of one copy of NVTX (a process may have several, one in each
/// library that includes the headers). False if the copy does not offer those tables.
bool attach_to_nvtx(NvtxGetExportTableFunc_t get_export_table);

}  // namespace taut::collect
