# NVTX, CUPTI, NCCL and the CUDA runtime: from the toolkit where there is one, else from the wheels in .venv.
#   taut::nvtx   header-only, always
#   taut::cuda   CUDA runtime headers;  taut::cupti, taut::nccl   headers only (the libraries are opened at run time)
#   TAUT_NVCC    ON when .cu files can be compiled
#   TAUT_SITE_PACKAGES   the wheels' folder, behind the link .venv; empty where there is no .venv
set(TAUT_SITE_PACKAGES "")
file(GLOB _taut_site LIST_DIRECTORIES true ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages)
if(_taut_site)
  list(GET _taut_site 0 _taut_site)
  file(REAL_PATH "${_taut_site}" TAUT_SITE_PACKAGES)
endif()
find_package(CUDAToolkit QUIET)

function(_taut_header_target name header)
  find_path(TAUT_${name}_INCLUDE ${header} NO_CACHE
    HINTS ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_LIBRARY_ROOT}/extras/CUPTI/include
          ${TAUT_SITE_PACKAGES}/nvidia/cu13/include ${TAUT_SITE_PACKAGES}/nvidia/nccl/include)
  if(TAUT_${name}_INCLUDE)
    add_library(taut_${name}_headers INTERFACE)
    target_include_directories(taut_${name}_headers SYSTEM INTERFACE ${TAUT_${name}_INCLUDE})
    add_library(taut::${name} ALIAS taut_${name}_headers)
  endif()
endfunction()
_taut_header_target(nvtx nvtx3/nvToolsExtPayload.h)
_taut_header_target(cuda cuda_runtime.h)
_taut_header_target(cupti cupti.h)
_taut_header_target(nccl nccl.h)
if(NOT TARGET taut::nvtx)
  message(FATAL_ERROR "NVTX headers (nvtx3/nvToolsExtPayload.h) not found. Run ./quickstart, or install the CUDA toolkit, "
    "or put the wheel in place: python3 -m venv .venv && .venv/bin/pip install nvidia-nvtx")
endif()
target_link_libraries(taut_nvtx_headers INTERFACE ${CMAKE_DL_LIBS})

set(TAUT_NVCC OFF)
if(CUDAToolkit_NVCC_EXECUTABLE)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 90)
  endif()
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  set(TAUT_NVCC ON)
endif()
option(TAUT_REQUIRE_NVCC "Stop where the CUDA compiler is missing, instead of building without kernels for the GPU" OFF)
if(TAUT_REQUIRE_NVCC AND NOT TAUT_NVCC)
  message(FATAL_ERROR "nvcc not found. Install the CUDA toolkit (13.0), put its bin folder into PATH or set CUDAToolkit_ROOT.")
endif()
message(STATUS "CUDA: nvcc ${TAUT_NVCC}, toolkit '${CUDAToolkit_VERSION}'")
