# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Kokkos::kokkoskernels: an existing target, an installed package, a source folder, the pinned archive. Of the
# latter two only the BLAS component is built, over OpenBLAS.
include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/ObtainArchive.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/PinnedArchives.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/ProvideOpenBLAS.cmake")

function(attikos_provide_kokkos_kernels)
  set(ATTIKOS_KOKKOS_KERNELS_DIR "" PARENT_SCOPE)
  if(TARGET Kokkos::kokkoskernels)
    return()
  endif()
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
  if(ATTIKOS_KOKKOS_KERNELS_SOURCE_DIR)
    set(source "${ATTIKOS_KOKKOS_KERNELS_SOURCE_DIR}")
  else()
    # Built on the same Kokkos, or on none that we can see: a package on another Kokkos would clash.
    if(NOT ATTIKOS_KOKKOS_DIR STREQUAL "${ATTIKOS_DEPS_DIR}/kokkos-build")
      find_package(KokkosKernels CONFIG QUIET)
    endif()
    if(TARGET Kokkos::kokkoskernels)
      message(STATUS "Attikos: Kokkos Kernels ${KokkosKernels_VERSION} from ${KokkosKernels_DIR}")
      set(ATTIKOS_KOKKOS_KERNELS_DIR "${KokkosKernels_DIR}" PARENT_SCOPE)
      return()
    endif()
    attikos_obtain_pypi(root ${ATTIKOS_PIN_PYCOMPADRE} PATHS kokkos-kernels AS kokkos-kernels-src
      CARRIES "Kokkos Kernels 4.5.01" OTHERWISE "Bring a Kokkos Kernels of your own: -DKokkosKernels_ROOT=<install prefix> or \
-DATTIKOS_KOKKOS_KERNELS_SOURCE_DIR=<source folder>; or build without: -DATTIKOS_ENABLE_KOKKOS_KERNELS=OFF.")
    set(source "${root}/kokkos-kernels")
  endif()

  attikos_provide_openblas()
  get_filename_component(folder "${ATTIKOS_OPENBLAS_LIBRARY_FILE}" DIRECTORY)
  set(CMAKE_CXX_STANDARD 20)
  set(CMAKE_CXX_STANDARD_REQUIRED ON)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  foreach(setting ENABLE_ALL_COMPONENTS=OFF ENABLE_COMPONENT_BLAS=ON ENABLE_TPL_BLAS=ON ENABLE_TPL_LAPACK=OFF
                  ENABLE_TPL_CUBLAS=OFF ENABLE_TPL_CUSPARSE=OFF ENABLE_TPL_CUSOLVER=OFF ADD_DEFAULT_ETI=OFF)
    string(REGEX MATCH "^(.*)=(.*)$" setting "${setting}")
    attikos_kokkos_default(KokkosKernels_${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
  endforeach()
  # Otherwise a Fortran compiler is asked how BLAS's names are spelled.
  set(F77_BLAS_MANGLE "(name,NAME) name ## _" CACHE STRING "Spelling of BLAS's Fortran names")
  # In the cache: Kokkos Kernels declares both there, which would undo ordinary variables on the first configure.
  set(BLAS_LIBRARIES openblas CACHE STRING "BLAS below Kokkos Kernels")
  set(BLAS_LIBRARY_DIRS "${folder}" CACHE STRING "Where that BLAS lies")
  set(CMAKE_MESSAGE_LOG_LEVEL WARNING)  # it prints pages
  add_subdirectory("${source}" "${ATTIKOS_DEPS_DIR}/kokkos-kernels-build" SYSTEM)
  # It installs a package but exports no build tree; ours needs one to refer to.
  export(EXPORT KokkosKernelsTargets NAMESPACE Kokkos::
         FILE "${ATTIKOS_DEPS_DIR}/kokkos-kernels-build/KokkosKernelsTargets.cmake")
  if(TARGET attikos_openblas)
    get_target_property(options attikos_openblas INTERFACE_LINK_OPTIONS)
    if(options)
      target_link_options(kokkoskernels INTERFACE $<BUILD_INTERFACE:${options}>)
    endif()
  endif()
  set(ATTIKOS_KOKKOS_KERNELS_DIR "${ATTIKOS_DEPS_DIR}/kokkos-kernels-build" PARENT_SCOPE)
  set(CMAKE_MESSAGE_LOG_LEVEL STATUS)
  message(STATUS "Attikos: Kokkos Kernels from ${source}")
endfunction()
