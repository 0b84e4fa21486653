# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# What processor Attikos's own libraries and programs are compiled for. Nothing of this reaches a user's target: a
# program that is to run anywhere must not get the instructions of the machine that built a dependency of it.
include_guard(GLOBAL)

# attikos_kokkos_names_architecture(<out>): Kokkos hands flags for an architecture to all that link it, because it
# was configured with one of Kokkos_ARCH_*. Those hold then, as for any program on that Kokkos.
function(attikos_kokkos_names_architecture out)
  set(${out} FALSE PARENT_SCOPE)
  foreach(target Kokkos::kokkos Kokkos::kokkoscore)
    if(TARGET ${target})
      get_target_property(options ${target} INTERFACE_COMPILE_OPTIONS)
      if(options MATCHES "-m(arch|cpu)=|-tp=|-x[A-Z]")
        set(${out} TRUE PARENT_SCOPE)
      endif()
    endif()
  endforeach()
endfunction()

include(CheckCXXCompilerFlag)
attikos_kokkos_names_architecture(attikos_named)
set(attikos_default "")
if(NOT attikos_named AND NOT CMAKE_CXX_FLAGS MATCHES "-m(arch|cpu)=" AND
   CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  # AVX2, FMA and what came with them; older compilers know the level by the name of its first processor.
  foreach(attikos_candidate x86-64-v3 haswell)
    string(MAKE_C_IDENTIFIER "ATTIKOS_COMPILER_KNOWS_${attikos_candidate}" attikos_variable)
    check_cxx_compiler_flag("-march=${attikos_candidate}" ${attikos_variable})
    if(${attikos_variable})
      set(attikos_default "${attikos_candidate}")
      break()
    endif()
  endforeach()
endif()
set(ATTIKOS_ARCHITECTURE "${attikos_default}" CACHE STRING
    "Processor that libattikos, tests, examples and perf programs are compiled for, as -march takes it, such as native; \
empty: what the compiler's flags, or Kokkos's, say")

# attikos_architecture_flags: for our own targets; CUDA's host code is compiled as its flags say.
add_library(attikos_architecture_flags INTERFACE)
if(ATTIKOS_ARCHITECTURE)
  set(attikos_flag "-march=${ATTIKOS_ARCHITECTURE}")
  if(ATTIKOS_ARCHITECTURE STREQUAL "native" AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    set(attikos_flag "-mcpu=native")  # the only spelling that all compilers for Arm know
  endif()
  string(MAKE_C_IDENTIFIER "ATTIKOS_COMPILER_KNOWS_${ATTIKOS_ARCHITECTURE}" attikos_variable)
  check_cxx_compiler_flag("${attikos_flag}" ${attikos_variable})
  if(NOT ${attikos_variable})
    message(FATAL_ERROR "Attikos: ATTIKOS_ARCHITECTURE=${ATTIKOS_ARCHITECTURE}, but ${CMAKE_CXX_COMPILER} does not "
                        "take ${attikos_flag}; name another, or none.")
  endif()
  target_compile_options(attikos_architecture_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${attikos_flag}>")
endif()
unset(attikos_named)
unset(attikos_default)
unset(attikos_candidate)
unset(attikos_variable)
unset(attikos_flag)
