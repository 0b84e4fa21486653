# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# attikos_check_kokkos_position_independent(): a shared library takes a static Kokkos in only if that was compiled
# as position-independent code; without it the link would end in a page of relocation errors.
include_guard(GLOBAL)

function(attikos_check_kokkos_position_independent)
  set(core "")
  foreach(candidate kokkoscore Kokkos::kokkoscore)
    if(TARGET ${candidate})
      set(core ${candidate})
      break()
    endif()
  endforeach()
  if(NOT core)
    return()  # an umbrella target of the parent project's own making: nothing to look at
  endif()
  get_target_property(aliased ${core} ALIASED_TARGET)
  if(aliased)
    set(core ${aliased})
  endif()
  get_target_property(type ${core} TYPE)
  if(type STREQUAL "SHARED_LIBRARY")
    return()
  endif()
  get_target_property(imported ${core} IMPORTED)
  if(imported)
    # An installed archive does not say how it was compiled, so one function of it is linked into a shared
    # object. Declared here instead of included: Kokkos's headers take seconds.
    if(NOT DEFINED ATTIKOS_KOKKOS_IS_PIC OR NOT ATTIKOS_KOKKOS_PIC_CHECKED STREQUAL "${Kokkos_DIR}")
      unset(ATTIKOS_KOKKOS_IS_PIC CACHE)
      set(source "${PROJECT_BINARY_DIR}/CMakeFiles/attikos_kokkos_pic.cpp")
      file(WRITE "${source}"
           "namespace Kokkos { void initialize(int&, char**); void finalize(); }\n"
           "void probe(int& count, char** words) { Kokkos::initialize(count, words); Kokkos::finalize(); }\n")
      try_compile(ATTIKOS_KOKKOS_IS_PIC "${PROJECT_BINARY_DIR}/CMakeFiles/attikos_kokkos_pic" "${source}"
        CMAKE_FLAGS "-DCMAKE_POSITION_INDEPENDENT_CODE=ON"
        LINK_OPTIONS -shared
        LINK_LIBRARIES Kokkos::kokkos
        OUTPUT_VARIABLE log)
      set(ATTIKOS_KOKKOS_PIC_CHECKED "${Kokkos_DIR}" CACHE INTERNAL "Where ATTIKOS_KOKKOS_IS_PIC was found out")
      string(REGEX MATCH "[^\n]*(relocation|recompile)[^\n]*" reason "${log}")
      set(ATTIKOS_KOKKOS_PIC_REASON "${reason}" CACHE INTERNAL "What the linker said")
    endif()
    set(pic ${ATTIKOS_KOKKOS_IS_PIC})
  else()
    get_target_property(pic ${core} POSITION_INDEPENDENT_CODE)
  endif()
  if(NOT pic)
    message(FATAL_ERROR
      "Attikos: the C library needs a position-independent Kokkos, but that of ${ATTIKOS_KOKKOS_ORIGIN} is not. Build "
      "Kokkos with -DCMAKE_POSITION_INDEPENDENT_CODE=ON or -DBUILD_SHARED_LIBS=ON, or Attikos with "
      "-DATTIKOS_BUILD_C=OFF. ${ATTIKOS_KOKKOS_PIC_REASON}")
  endif()
endfunction()
