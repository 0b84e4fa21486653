# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Target `attikos_openblas` (cblas.h and the library): an installed OpenBLAS, else the distribution's packages
# unpacked into the build tree. A peer of the perf programs and the BLAS below Kokkos Kernels.
include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/ObtainArchive.cmake")

# attikos_provide_openblas(): defines the target and ATTIKOS_OPENBLAS_LIBRARY in the caller's scope.
function(attikos_provide_openblas)
  find_library(ATTIKOS_OPENBLAS_LIBRARY NAMES openblas DOC "OpenBLAS library")
  find_path(ATTIKOS_OPENBLAS_INCLUDE_DIR NAMES cblas.h PATH_SUFFIXES openblas x86_64-linux-gnu openblas-pthread
            DOC "Folder with OpenBLAS's cblas.h")
  mark_as_advanced(ATTIKOS_OPENBLAS_LIBRARY ATTIKOS_OPENBLAS_INCLUDE_DIR)
  set(library "${ATTIKOS_OPENBLAS_LIBRARY}")
  set(include_dir "${ATTIKOS_OPENBLAS_INCLUDE_DIR}")
  if(NOT library OR NOT include_dir)
    attikos_obtain_debian(root PACKAGES libopenblas0-pthread libopenblas-pthread-dev libgfortran5 libquadmath0
      AS openblas OTHERWISE "Install OpenBLAS, or build without perf: -DATTIKOS_BUILD_PERF=OFF.")
    file(GLOB library "${root}/usr/lib/*/openblas-pthread/libopenblas.so")
    file(GLOB include_dir "${root}/usr/include/*/openblas-pthread")
    if(NOT library OR NOT include_dir)
      message(FATAL_ERROR "Attikos: the distribution's OpenBLAS packages are laid out unexpectedly; install OpenBLAS.")
    endif()
  endif()
  if(NOT TARGET attikos_openblas)
    add_library(attikos_openblas SHARED IMPORTED GLOBAL)
    set_target_properties(attikos_openblas PROPERTIES
      IMPORTED_LOCATION "${library}" INTERFACE_INCLUDE_DIRECTORIES "${include_dir}")
    # The Fortran run time of the unpacked packages lies beside the library.
    get_filename_component(folder "${library}" DIRECTORY)
    get_filename_component(folder "${folder}" DIRECTORY)
    if(root)
      target_link_options(attikos_openblas INTERFACE "LINKER:-rpath-link,${folder}" "LINKER:-rpath,${folder}"
                          "LINKER:--disable-new-dtags")
    endif()
    message(STATUS "Attikos: OpenBLAS from ${library}")
  endif()
  set(ATTIKOS_OPENBLAS_LIBRARY_FILE "${library}" PARENT_SCOPE)
endfunction()
