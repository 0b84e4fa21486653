# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# attikos_target_language(<target>...): compiles the targets' C++ sources as the language that Kokkos was built
# as. With a Kokkos that uses CMake's CUDA language every file that includes Kokkos must be CUDA; otherwise
# this does nothing. Part of the installed package; what it needs to know Attikos::attikos carries.

function(attikos_target_language)
  get_target_property(language Attikos::attikos ATTIKOS_KOKKOS_LANGUAGE)
  if(NOT language STREQUAL "CUDA")
    return()
  endif()
  get_target_property(architectures Attikos::attikos ATTIKOS_KOKKOS_CUDA_ARCHITECTURES)
  if(ATTIKOS_CUDA_QUICK)  # PTX alone: to assemble portable kernels takes half the time
    list(TRANSFORM architectures APPEND "-virtual")
  endif()
  foreach(target IN LISTS ARGN)
    get_target_property(sources ${target} SOURCES)
    foreach(source IN LISTS sources)
      if(source MATCHES "\\.(cpp|cxx|cc)$")
        set_source_files_properties("${source}" TARGET_DIRECTORY ${target} PROPERTIES LANGUAGE CUDA)
      endif()
    endforeach()
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CUDA)
    if(architectures)
      set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES "${architectures}")
    endif()
  endforeach()
endfunction()
