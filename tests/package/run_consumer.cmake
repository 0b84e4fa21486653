# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Configures, builds and runs the consumer project from scratch.
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE "${BINARY}")
set(arguments "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}" "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}"
    "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}" ${ARGUMENTS})
if(LANGUAGE STREQUAL "CUDA")
  list(APPEND arguments "-DCONSUMER_CUDA=ON" "-DCMAKE_CUDA_COMPILER=${CUDA_COMPILER}")
endif()

function(step what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE log ERROR_VARIABLE log)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${NAME}: ${what} failed (${code}):\n${log}")
  endif()
  set(log "${log}" PARENT_SCOPE)
endfunction()

step("configuring" "${CMAKE_COMMAND}" -S "${SOURCE}" -B "${BINARY}" -G "${GENERATOR}" ${arguments})
if(log MATCHES "downloading")
  message(FATAL_ERROR "${NAME}: configuring downloaded something:\n${log}")
endif()
step("building" "${CMAKE_COMMAND}" --build "${BINARY}" --parallel 2)

execute_process(COMMAND "${BINARY}/consumer" RESULT_VARIABLE code OUTPUT_VARIABLE log ERROR_VARIABLE log)
if(log MATCHES "libcuda\\.so\\.1: cannot open shared object file")
  message(STATUS "${NAME}: built; not run, this machine has no CUDA driver")
elseif(NOT code EQUAL 0)
  message(FATAL_ERROR "${NAME}: running failed (${code}):\n${log}")
else()
  message(STATUS "${NAME}: ${log}")
endif()
