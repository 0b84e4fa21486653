# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Writes a translation unit that stands for sources of the companion which a build leaves out: the same kernels, each
# of which refuses every call and says why.
#   cmake -DOUTPUT=<file.cpp> -P refuse.cmake -- <file.cu>...
# Kernels are found by their definitions, `Verdict Name::accepts(Args const&, ...` and the like.
cmake_minimum_required(VERSION 3.25)

set(text "")
set(after FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(after)
    file(READ "${CMAKE_ARGV${i}}" source)
    if(NOT source MATCHES "::accepts\\(")
      message(FATAL_ERROR "${CMAKE_ARGV${i}}: defines no kernel")
    endif()
    string(APPEND text "${source}")
  elseif(CMAKE_ARGV${i} STREQUAL "--")
    set(after TRUE)
  endif()
endforeach()
string(REGEX MATCHALL
  "[A-Za-z:_]+[ \n]+[A-Za-z0-9]+::(accepts|tiles|workspace_bytes|launch)\\([A-Za-z]+ const&" definitions "${text}")
set(kernels "")
foreach(definition IN LISTS definitions)
  string(REGEX MATCH "^([A-Za-z:_]+)[ \n]+([A-Za-z0-9]+)::([a-z_]+)\\(([A-Za-z]+) const&$" _ "${definition}")
  set(parameters "${CMAKE_MATCH_4} const&, Device const&")
  if(CMAKE_MATCH_3 STREQUAL "accepts")
    set(body "return refused(reason);")
  elseif(CMAKE_MATCH_3 STREQUAL "launch")
    string(APPEND parameters ", CUstream_st*")
    set(body "return cudaErrorNotSupported;")
  else()  # no tiles, no temporary memory
    set(body "return {};")
  endif()
  string(APPEND kernels
    "${CMAKE_MATCH_1} ${CMAKE_MATCH_2}::${CMAKE_MATCH_3}(${parameters}) noexcept { ${body} }\n")
endforeach()
file(WRITE "${OUTPUT}" "// Written by refuse.cmake.
#include <driver_types.h>

#include <attikos/abi/append_kv_cuda.hpp>
#include <attikos/abi/attention_backward_cuda.hpp>
#include <attikos/abi/attention_cuda.hpp>
#include <attikos/abi/decode_cuda.hpp>
#include <attikos/abi/gated_mlp.hpp>
#include <attikos/abi/gemm.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {
namespace {
constexpr char const* reason = \"it was left out of this build (ATTIKOS_CUDA_LEAVE_OUT)\";
}

${kernels}
}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
")
