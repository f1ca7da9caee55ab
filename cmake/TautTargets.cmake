# taut_library(taut_store SOURCES a.cpp LIBS SQLite::SQLite3): a static library whose headers are included from the root,
# as "tracer/store/writer.h". taut_program likewise.
function(_taut_setup target)
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR})
  # -Wno-restrict: g++ 12 cries wolf on "text" + std::string.
  target_compile_options(${target} PRIVATE -Wall -Wextra "$<$<BOOL:${TAUT_WERROR}>:-Werror;-Wno-restrict>")
endfunction()

function(taut_library target)
  cmake_parse_arguments(ARG "SHARED" "" "SOURCES;LIBS" ${ARGN})
  if(ARG_SHARED)
    add_library(${target} SHARED ${ARG_SOURCES})
  else()
    add_library(${target} STATIC ${ARG_SOURCES})
  endif()
  target_link_libraries(${target} PUBLIC ${ARG_LIBS})
  _taut_setup(${target})
endfunction()

function(taut_program target)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${target} ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE ${ARG_LIBS})
  _taut_setup(${target})
endfunction()
