# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Programs of C and, where FORTRAN names its compiler, of Fortran against the moved install tree, built by what
# pkg-config says.
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
file(GLOB_RECURSE package "${PREFIX}/*/attikos-c.pc")
if(NOT package)
  message(FATAL_ERROR "no attikos-c.pc was installed into ${PREFIX}")
endif()
cmake_path(GET package PARENT_PATH folder)
set(ENV{PKG_CONFIG_PATH} "${folder}")

function(run)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE code OUTPUT_VARIABLE log ERROR_VARIABLE log)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${ARGN} failed (${code}):\n${log}")
  endif()
  set(log "${log}" PARENT_SCOPE)
endfunction()

run("${PKG_CONFIG}" --modversion attikos-c)
string(STRIP "${log}" version)
run("${PKG_CONFIG}" --cflags attikos-c)
separate_arguments(compile UNIX_COMMAND "${log}")
run("${PKG_CONFIG}" --libs attikos-c)
separate_arguments(link UNIX_COMMAND "${log}")
run("${PKG_CONFIG}" --variable=libdir attikos-c)
string(STRIP "${log}" libraries)
set(link ${link} "-Wl,-rpath,${libraries}")

file(WRITE "${WORK}/version.c" "#include <attikos/attikos.h>\n#include <stdio.h>\n"
  "int main(void) { return puts(attikos_version_string()) < 0; }\n")
if(HAS_CUDA)  # a program of such a build wants the driver, which a machine without a card lacks
  list(APPEND link "-Wl,--unresolved-symbols=ignore-in-shared-libs")
endif()
run("${C_COMPILER}" ${compile} version.c -o version ${link})
if(HAS_CUDA)
  message(STATUS "built, not run")
  return()
endif()
run("${WORK}/version")
if(NOT log STREQUAL "${version}\n")
  message(FATAL_ERROR "attikos-c.pc says ${version}, the library ${log}")
endif()
if(FORTRAN)
  run("${FORTRAN}" "-I${PREFIX}/include/attikos/fortran" "${EXAMPLE}" -o fortran "-L${libraries}" -lattikos_fortran ${link}
      -lstdc++)
  run("${WORK}/fortran")
endif()
message(STATUS "${version}: ${log}")
