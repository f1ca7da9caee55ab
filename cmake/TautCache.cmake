# What clones share. TAUT_CACHE_DIR is the folder, the same as ./quickstart and ./test use: $TAUT_CACHE or ~/.cache/taut.
if(DEFINED ENV{TAUT_CACHE})
  set(TAUT_CACHE_DIR $ENV{TAUT_CACHE})
else()
  set(TAUT_CACHE_DIR $ENV{HOME}/.cache/taut)
endif()

# Compiled objects: ccache is told to forget in which folder a clone lies. The precompiled LibTorch header is cached too,
# which needs the "sloppiness" entries pch_defines and time_macros. A CCACHE_DIR of your own is respected.
option(TAUT_CCACHE "Compile through ccache where it is installed" ON)
find_program(CCACHE ccache)
if(TAUT_CCACHE AND CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(_taut_launcher /usr/bin/env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime)
  if(NOT DEFINED ENV{CCACHE_DIR})
    list(APPEND _taut_launcher CCACHE_DIR=${TAUT_CACHE_DIR}/ccache CCACHE_MAXSIZE=4G)
  endif()
  list(APPEND _taut_launcher ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${_taut_launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${_taut_launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${_taut_launcher})
endif()
