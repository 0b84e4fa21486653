# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Who may include whom. cmake -D ROOT=<repository> -P check_include_rules.cmake
# With SELF_TEST=ON, ROOT is a scratch folder: one offender per rule is written there and each must be found.
cmake_minimum_required(VERSION 3.25)

set(violations "")
set(violation_count 0)

# forbid(<files> <regular expression of a line> <why>)
function(forbid files pattern why)
  foreach(file IN LISTS files)
    file(STRINGS "${file}" lines REGEX "${pattern}")
    foreach(line IN LISTS lines)
      string(STRIP "${line}" line)
      if(line MATCHES "^(//|\\*|/\\*)")
        continue()  # prose may speak of what code must not do
      endif()
      file(RELATIVE_PATH name "${ROOT}" "${file}")
      string(APPEND violations "  ${name}: ${line}   (${why})\n")
      math(EXPR violation_count "${violation_count} + 1")
    endforeach()
  endforeach()
  set(violations "${violations}" PARENT_SCOPE)
  set(violation_count ${violation_count} PARENT_SCOPE)
endfunction()

set(include_line "^[ \t]*#[ \t]*include[ \t]*[<\"]")
set(public "${ROOT}/include/attikos")

if(SELF_TEST)
  file(REMOVE_RECURSE "${ROOT}")
  file(WRITE "${public}/abi/a.hpp" "#include <Kokkos_Core.hpp>\n#include <attikos/core/error.hpp>\n#include <vector>\n")
  file(WRITE "${public}/epilogue/a.hpp" "#include \"Kokkos_Core.hpp\"\n#include <attikos/core/error.hpp>\n")
  file(WRITE "${public}/core/a.hpp" "#include <attikos/gemm/gemm.hpp>\n#include <attikos/mlp/gated_mlp.hpp>\n  #  include <attikos/reference/r.hpp>\n")
  file(WRITE "${public}/gemm/a.hpp" "#include <attikos/testing/testing.hpp>\n__global__ void f();\nauto g() { f<<<1, 2>>>(); }\n// f<<<1, 2>>>() is fine here\n")
  file(WRITE "${public}/host/a.hpp" "#include <Kokkos_Core.hpp>\n#include <attikos/core/error.hpp>\n#include <vector>\n#include <attikos/host/b.hpp>\n#include <cstring>\nasm(\"nop\");\n")
  file(WRITE "${public}/decode/a.hpp" "void f() { asm volatile(\"nop\"); }\n")
  file(WRITE "${public}/ptx/a.hpp" "#include <attikos/ptx/b.hpp>\n#include <attikos/core/error.hpp>\nvoid f() { asm volatile(\"nop;\"); }\n")
  file(WRITE "${public}/distributed/plan/a.hpp"
       "#include <Kokkos_Core.hpp>\n#include <mpi.h>\n#include <nlohmann/json.hpp>\n#include <attikos/distributed/shards.hpp>\n")
  file(WRITE "${public}/testing/a.hpp" "#include <attikos/reference/r.hpp>\n")  # may
  file(WRITE "${ROOT}/cuda_specializations/a.cuh"
       "#include <Kokkos_Core.hpp>\n#include <cublas_v2.h>\n#include <attikos/core/error.hpp>\n#include <cutlass/a.h>\nvoid f() { asm volatile(\"nop;\"); }\nint g() { asm(\"\"); }\n  if (!accepts(args, device).ok) return cudaErrorInvalidValue;\n")
  file(WRITE "${ROOT}/cuda_specializations/ptx/a.cuh" "void f() { asm volatile(\"nop;\"); }\n")  # may
  # Twelve that go up or sideways, among some that may be.
  foreach(include IN ITEMS "ptx:common/b" "common:sequences/b" "sequences:attention/shared/b" "append_kv:decode/plan"
          "decode/mma:attention/shared/b" "attention/sm90:gemm/shared/b" "gemm/sm80:sequences/b" "gemm/shared:gemm/sm80/b"
          "attention_backward/sm90:attention/sm90/b" "attention_backward/shared:attention_backward/sm90/b"
          "attention/sm80:attention/sm90/b" "attention/short:attention/f32/b"
          "gemm/sm90:gemm/sm80/b" "gemm/grouped:gemm/sm90/b" "attention/f32:attention/shared/b" "decode/mma:decode/plan")
    string(REPLACE ":" ";" include "${include}")
    list(GET include 0 room)
    list(GET include 1 included)
    file(APPEND "${ROOT}/cuda_specializations/${room}/rooms.cuh" "#include \"${included}.cuh\"\n")
  endforeach()
  set(expected 38)
endif()

file(GLOB_RECURSE all "${public}/*.hpp")
file(GLOB_RECURSE abi "${public}/abi/*.hpp")
file(GLOB_RECURSE epilogue "${public}/epilogue/*.hpp")
file(GLOB_RECURSE core "${public}/core/*.hpp")
file(GLOB_RECURSE host "${public}/host/*.hpp")
file(GLOB_RECURSE ptx "${public}/ptx/*.hpp")
file(GLOB_RECURSE plan "${public}/distributed/plan/*.hpp")
file(GLOB_RECURSE companion "${ROOT}/cuda_specializations/*.cu" "${ROOT}/cuda_specializations/*.cuh"
     "${ROOT}/cuda_specializations/*.hpp" "${ROOT}/cuda_specializations/*.cpp")
set(kernels ${companion})
list(FILTER kernels EXCLUDE REGEX "/cuda_specializations/ptx/")
set(neutral ${all})
list(FILTER neutral EXCLUDE REGEX "/include/attikos/(host|ptx)/")
set(portable ${all})
list(FILTER portable EXCLUDE REGEX "/include/attikos/(reference|testing)/")

set(operations "gemm|attention|decode|append_kv|mlp|norm|quantize|reduce|embedding|optimizer|perf|tune|testing|distributed|list_kernels\\.hpp|attikos\\.hpp")
set(vendor "(cublas|cudnn|cutlass|cute/|cub/|thrust/|cuda/std)")
forbid("${companion};${abi};${epilogue}" "${include_line}(Kokkos|KokkosBlas|impl/Kokkos)" "never Kokkos here")
forbid("${companion};${abi};${epilogue}" "${include_line}${vendor}" "no vendor library here")
forbid("${companion}" "${include_line}attikos/(core|reference|${operations})"
       "the companion sees abi/, epilogue/ and config.hpp only")
forbid("${kernels}" "(^|[^A-Za-z_])asm( volatile)?\\(" "an instruction has its wrapper in ptx/")
forbid("${companion}" "(refuse[a-z0-9_]*|accepts[a-z0-9_]*)[<(].*return cuda"
       "accepts() is asked once a call: launch() does not ask again")
forbid("${abi}" "${include_line}attikos/(core|epilogue|reference|${operations})"
       "abi/ includes abi/ only")
forbid("${abi}" "${include_line}(vector|string|iostream|memory|functional|sstream|map)[>\"]"
       "abi/ is plain structs: no owning standard types")
forbid("${epilogue}" "${include_line}attikos/(core|reference|${operations})"
       "epilogue/ includes abi/ only")
forbid("${host}" "${include_line}(Kokkos|attikos/(abi|core|epilogue|reference|${operations}))"
       "host/ includes host/ and config.hpp only")
forbid("${host}" "${include_line}(algorithm|array|cmath|functional|limits|map|memory|string|type_traits|utility|vector)[>\"]"
       "host/ calls no inline functions that others share")
forbid("${neutral}" "(^|[^A-Za-z_])asm( volatile)?\\(" "an instruction of a host has its function in host/, one of a device in ptx/")
forbid("${ptx}" "${include_line}(Kokkos|attikos/(abi|core|epilogue|reference|${operations}))"
       "ptx/ includes ptx/ and config.hpp only")
forbid("${plan}" "${include_line}(Kokkos|mpi\\.h|nlohmann/)" "distributed/plan/ compiles without Kokkos, MPI and JSON")
forbid("${core}" "${include_line}attikos/(${operations})"
       "core/ knows no operation")
forbid("${portable}" "${include_line}attikos/(reference|testing)/"
       "reference/ and testing/ are for tests: no other room includes them")
forbid("${all}" "__global__" "kernels live in cuda_specializations/")
forbid("${all}" "<<<" "launches live in cuda_specializations/")

# Rooms of the companion: ptx, common, sequences, then the operations, none of which enters another's. Of an operation,
# shared, or what lies in its folder itself, comes first, then one architecture after the other; rooms named after
# something else come last and know nothing of each other.
set(families append_kv attention attention_backward decode gemm)
foreach(file IN LISTS companion)
  file(RELATIVE_PATH name "${ROOT}/cuda_specializations" "${file}")
  string(REGEX REPLACE "^([^/]*)/.*" "\\1" family "${name}")
  set(quoted "^[ \t]*#[ \t]*include[ \t]*\"")
  set(others ${families})
  list(REMOVE_ITEM others ${family})
  if(family STREQUAL "ptx")
    list(APPEND others common sequences)
  elseif(family MATCHES "^(common|gemm)$")
    list(APPEND others sequences)
  endif()
  list(JOIN others "|" others)
  if(family IN_LIST families)
    set(room "shared")
    if(name MATCHES "^[^/]*/([^/]*)/")
      set(room "${CMAKE_MATCH_1}")
    endif()
    set(may "shared")
    if(NOT room STREQUAL "shared")
      foreach(architecture IN ITEMS sm75 sm80 sm90)
        if(NOT room MATCHES "^sm" OR NOT architecture STRGREATER room)
          list(APPEND may ${architecture})
        endif()
      endforeach()
      list(APPEND may ${room})
    endif()
    file(STRINGS "${file}" lines REGEX "${quoted}${family}/[^/\"]*/")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE ".*\"${family}/([^/]*)/.*" "\\1" entered "${line}")
      if(NOT entered IN_LIST may)
        forbid("${file}" "${quoted}${family}/${entered}/" "${family}/${room} does not enter ${family}/${entered}")
      endif()
    endforeach()
  endif()
  forbid("${file}" "${quoted}(\\.\\./|(${others})/)" "${family}/ does not enter that room")
endforeach()

if(SELF_TEST)
  if(NOT violation_count EQUAL expected)
    message(FATAL_ERROR "expected ${expected} findings, got ${violation_count}:\n${violations}")
  endif()
  message(STATUS "all ${expected} planted violations found")
elseif(violations)
  message(FATAL_ERROR "include rules broken:\n${violations}")
else()
  list(LENGTH all count)
  message(STATUS "${count} headers keep the include rules")
endif()
