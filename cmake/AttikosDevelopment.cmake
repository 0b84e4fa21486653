# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# What our own tests, examples and perf programs share; nothing of this reaches a user's target.
include_guard(GLOBAL)

# attikos_warning_flags: warnings for our own programs, in which our headers count as our own code.
add_library(attikos_warning_flags INTERFACE)
set(attikos_warnings -Wall -Wextra -Wconversion)
if(ATTIKOS_WARNINGS_AS_ERRORS)
  list(APPEND attikos_warnings -Werror)
endif()
target_compile_options(attikos_warning_flags INTERFACE
  "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU,Clang,AppleClang,IntelLLVM>>:${attikos_warnings};-Wpedantic>"
  # GCC's -Wconversion leaves signedness alone in C++, Clang's does not; both are to ask for the same.
  "$<$<COMPILE_LANG_AND_ID:CXX,Clang,AppleClang,IntelLLVM>:-Wno-sign-conversion>"
  # nvcc writes line markers and stubs that -Wpedantic and -Wconversion refuse; the host build checks those.
  "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-Xcompiler=-Wall,-Wextra>")
unset(attikos_warnings)

# attikos_development_flags: the same, and the architecture they are compiled for.
add_library(attikos_development_flags INTERFACE)
target_link_libraries(attikos_development_flags INTERFACE attikos_warning_flags attikos_architecture_flags)

# attikos_quick_to_compile: what a build for tests compiles with less optimization. The suite looks at results, and
# templates over every type take three times as long with -O3. The examples that are there to be timed are compiled as
# users compile them, and so is the C library in a build without tests, such as the wheel's.
# attikos_quickest_to_compile: the same without any, for what hardly computes.
option(ATTIKOS_TEST_OPTIMIZED "Compile the tests, and the C library beside them, with the build type's optimization" OFF)
add_library(attikos_quick_to_compile INTERFACE)
add_library(attikos_quickest_to_compile INTERFACE)
if(ATTIKOS_BUILD_TESTS AND NOT ATTIKOS_TEST_OPTIMIZED)
  set(attikos_host "$<COMPILE_LANG_AND_ID:CXX,GNU,Clang,AppleClang,IntelLLVM>,$<CONFIG:Release>")
  set(attikos_nvcc "$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>,$<VERSION_GREATER_EQUAL:$<CUDA_COMPILER_VERSION>,13>")
  set(attikos_nvcc "$<$<AND:${attikos_nvcc}>:-Xcompiler=-O0;-Ofc=max>")
  target_compile_options(attikos_quick_to_compile INTERFACE "$<$<AND:${attikos_host}>:-O1>" "${attikos_nvcc}")
  target_compile_options(attikos_quickest_to_compile INTERFACE "$<$<AND:${attikos_host}>:-O0>" "${attikos_nvcc}")
  unset(attikos_host)
  unset(attikos_nvcc)
endif()

# attikos_precompile(<target> (<header>... | REUSE_FROM <target>)): precompiled headers, for C++ alone; CMake has none for
# CUDA. What the compilers need with them: GCC 12 forgets that headers in them are the system's and warns of what it
# believes to see in std::string; a compiler cache needs the others.
function(attikos_precompile target)
  if("REUSE_FROM" IN_LIST ARGN)
    target_precompile_headers(${target} ${ARGN})
  else()
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow;-fpch-preprocess>"
    "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
endfunction()
