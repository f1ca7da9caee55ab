// A library with its own copy of NVTX, as Python extensions have.
#include <nvtx3/nvToolsExt.h>

extern "C" __attribute__((visibility("default"))) void speak_from_second_copy() {
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("second");
  nvtxEventAttributes_t a{};
  a.version = NVTX_VERSION;
  a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  a.message.registered = nvtxDomainRegisterStringA(domain, "from the second copy");
  nvtxDomainRangePushEx(domain, &a);
  nvtxRangePushA("inner of the second copy");
  nvtxRangePop();
  nvtxDomainRangePop(domain);
}
