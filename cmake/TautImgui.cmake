# Dear ImGui (docking branch), ImPlot, GLFW and the Dear ImGui test engine, built from source once something links them:
#   taut_imgui      Dear ImGui, ImPlot and the backends GLFW + OpenGL 3 and null, for the window
#   taut_imgui_te   the same with the test engine's hooks, and the engine: for test programs only (see NOTICE: its licence)
#   taut_glfw       GLFW: its null platform always, X11 where the headers are installed
# The sources are four folders of the imgui-bundle source package on PyPI, pinned by hash and fetched into the cache folder.
# -DTAUT_IMGUI_SOURCE_DIR=… names an unpacked imgui-bundle of your own instead.
include_guard(GLOBAL)
set(TAUT_IMGUI_SOURCE_DIR "" CACHE PATH "An unpacked imgui-bundle; empty = fetch the pinned one")

function(_taut_fetch_imgui folder)
  if(EXISTS ${folder})
    return()
  endif()
  file(LOCK ${folder}.lock GUARD FUNCTION)
  if(EXISTS ${folder})
    return()
  endif()
  message(STATUS "Fetching Dear ImGui, ImPlot and GLFW (54 MB) into ${folder}")
  find_program(_python NAMES python python3 NO_CACHE HINTS ${CMAKE_SOURCE_DIR}/.venv/bin)
  set(_part ${folder}.part)
  file(REMOVE_RECURSE ${_part})
  file(MAKE_DIRECTORY ${_part}/unpacked)
  execute_process(COMMAND ${_python} -m pip download --quiet --no-deps --no-binary imgui-bundle --require-hashes
    -r ${CMAKE_SOURCE_DIR}/cmake/imgui-requirements.txt -d ${_part}/download RESULT_VARIABLE _failed)
  file(GLOB _archive ${_part}/download/*.tar.gz)
  if(_failed OR NOT _archive)
    message(FATAL_ERROR "Dear ImGui could not be fetched from PyPI. Is the network up? Without it: "
      "-DTAUT_IMGUI_SOURCE_DIR=<unpacked imgui-bundle>, or -DTAUT_GUI=OFF.")
  endif()
  file(ARCHIVE_EXTRACT INPUT ${_archive} DESTINATION ${_part}/unpacked PATTERNS "*/external/imgui/imgui/*"
    "*/external/implot/implot/*" "*/external/imgui_test_engine/imgui_test_engine/*" "*/external/glfw/glfw/*")
  file(GLOB _unpacked ${_part}/unpacked/imgui_bundle-*)
  file(RENAME ${_unpacked} ${folder})
  file(REMOVE_RECURSE ${_part})
endfunction()

if(TAUT_IMGUI_SOURCE_DIR)
  set(_bundle ${TAUT_IMGUI_SOURCE_DIR}/external)
else()
  set(_bundle ${TAUT_CACHE_DIR}/imgui-bundle-1.93.0-10ad1dab)
  _taut_fetch_imgui(${_bundle})
  set(_bundle ${_bundle}/external)
endif()
set(_imgui ${_bundle}/imgui/imgui)
set(_implot ${_bundle}/implot/implot)
set(_engine ${_bundle}/imgui_test_engine/imgui_test_engine)

# GLFW by its own build. Its X11 part is on only where every header is there; the library itself opens libX11 at run time.
find_package(X11 QUIET)
set(_has_x11 OFF)
if(X11_FOUND AND X11_Xrandr_INCLUDE_PATH AND X11_Xinerama_INCLUDE_PATH AND X11_Xkb_INCLUDE_PATH
   AND X11_Xcursor_INCLUDE_PATH AND X11_Xi_INCLUDE_PATH AND X11_Xshape_INCLUDE_PATH)
  set(_has_x11 ON)
endif()
set(GLFW_BUILD_X11 ${_has_x11} CACHE BOOL "" FORCE)
set(GLFW_BUILD_WAYLAND OFF CACHE BOOL "" FORCE)
set(GLFW_BUILD_DOCS OFF CACHE BOOL "" FORCE)
set(GLFW_BUILD_TESTS OFF CACHE BOOL "" FORCE)
set(GLFW_BUILD_EXAMPLES OFF CACHE BOOL "" FORCE)
set(GLFW_INSTALL OFF CACHE BOOL "" FORCE)
set(GLFW_LIBRARY_TYPE STATIC CACHE STRING "" FORCE)
add_subdirectory(${_bundle}/glfw/glfw ${CMAKE_BINARY_DIR}/glfw EXCLUDE_FROM_ALL SYSTEM)
add_library(taut_glfw INTERFACE)
target_link_libraries(taut_glfw INTERFACE glfw ${CMAKE_DL_LIBS})

# The test library is built for its build time. Warnings in other people's code are theirs.
function(_taut_imgui_library target optimization)
  add_library(${target} STATIC EXCLUDE_FROM_ALL
    ${_imgui}/imgui.cpp ${_imgui}/imgui_demo.cpp ${_imgui}/imgui_draw.cpp ${_imgui}/imgui_stacklayout.cpp
    ${_imgui}/imgui_tables.cpp ${_imgui}/imgui_widgets.cpp ${_imgui}/misc/cpp/imgui_stdlib.cpp
    ${_imgui}/backends/imgui_impl_glfw.cpp ${_imgui}/backends/imgui_impl_null.cpp ${_imgui}/backends/imgui_impl_opengl3.cpp
    ${_implot}/implot.cpp ${_implot}/implot_items.cpp ${ARGN})
  target_include_directories(${target} SYSTEM PUBLIC ${_imgui} ${_imgui}/backends ${_imgui}/misc/cpp ${_implot})
  target_link_libraries(${target} PUBLIC taut_glfw Threads::Threads)
  target_compile_options(${target} PRIVATE -w ${optimization})
endfunction()

_taut_imgui_library(taut_imgui -O2)
file(GLOB _engine_sources ${_engine}/imgui_test_engine/*.cpp)
_taut_imgui_library(taut_imgui_te -O0 ${_engine_sources})
target_include_directories(taut_imgui_te SYSTEM PUBLIC ${_engine} ${_engine}/imgui_test_engine)
target_compile_definitions(taut_imgui_te PUBLIC IMGUI_ENABLE_TEST_ENGINE IMGUI_TEST_ENGINE_ENABLE_COROUTINE_STDTHREAD_IMPL=1)
