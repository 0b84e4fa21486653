# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Installs BUILD into FIRST, moves it to MOVED and looks for paths that would tie it to this machine.
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE "${FIRST}" "${MOVED}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${FIRST}" --config "${CONFIG}"
                RESULT_VARIABLE code OUTPUT_VARIABLE log ERROR_VARIABLE log)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "cmake --install failed:\n${log}")
endif()
file(RENAME "${FIRST}" "${MOVED}")

file(GLOB_RECURSE files "${MOVED}/*/cmake/Attikos/*.cmake" "${MOVED}/include/attikos/config.hpp")
if(NOT files)
  message(FATAL_ERROR "no package files were installed into ${MOVED}")
endif()
foreach(file IN LISTS files)
  file(READ "${file}" text)
  foreach(path "${FIRST}" "${BUILD}" "${ROOT}")
    string(FIND "${text}" "${path}" position)
    if(NOT position EQUAL -1)
      message(FATAL_ERROR "${file} holds ${path}: the install tree cannot be moved")
    endif()
  endforeach()
endforeach()
list(LENGTH files count)
message(STATUS "installed and moved; ${count} package files hold no path of this machine")
