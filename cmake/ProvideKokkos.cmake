# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Kokkos >= 4.7 in C++20 mode: an existing target, an installed package, a source folder, the pinned archive,
# in this order. Nothing is downloaded when a Kokkos was found.
include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/ObtainArchive.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/PinnedArchives.cmake")

set(ATTIKOS_KOKKOS_MINIMUM 4.7)

# What the rest of the build needs to know about Kokkos, whichever way it came:
#   ATTIKOS_KOKKOS_HAS_CUDA            its CUDA back end is on
#   ATTIKOS_KOKKOS_LANGUAGE            language that sources including Kokkos are compiled as: CXX or CUDA
#   ATTIKOS_KOKKOS_CUDA_ARCHITECTURES  the architecture it was built for
#   ATTIKOS_KOKKOS_DIR                 folder with KokkosConfig.cmake, or empty
function(attikos_describe_kokkos)
  set(has_cuda FALSE)
  set(language CXX)
  set(architectures "")
  if(Kokkos_DEVICES)  # a package was found here or by the parent project
    if("CUDA" IN_LIST Kokkos_DEVICES)
      set(has_cuda TRUE)
    endif()
    if(Kokkos_COMPILE_LANGUAGE)
      set(language "${Kokkos_COMPILE_LANGUAGE}")
    endif()
    set(architectures "${Kokkos_CUDA_ARCHITECTURES}")
    set(candidates ${Kokkos_ARCH})
  else()  # built from source in this tree: its options are cache variables
    if(Kokkos_ENABLE_CUDA)
      set(has_cuda TRUE)
      if(Kokkos_ENABLE_COMPILE_AS_CMAKE_LANGUAGE)
        set(language CUDA)
      endif()
    endif()
    get_cmake_property(names CACHE_VARIABLES)
    set(candidates "")
    foreach(name IN LISTS names)
      if(name MATCHES "^Kokkos_ARCH_([A-Z]+[0-9]+)$")
        set(candidate "${CMAKE_MATCH_1}")
        if(${name})
          list(APPEND candidates "${candidate}")
        endif()
      endif()
    endforeach()
  endif()
  if(NOT architectures)
    foreach(candidate IN LISTS candidates)
      if(candidate MATCHES "^(VOLTA|TURING|AMPERE|ADA|HOPPER|BLACKWELL)([0-9]+)$")
        set(architectures "${CMAKE_MATCH_2}")
      endif()
    endforeach()
  endif()
  set(ATTIKOS_KOKKOS_HAS_CUDA ${has_cuda} PARENT_SCOPE)
  set(ATTIKOS_KOKKOS_LANGUAGE ${language} PARENT_SCOPE)
  set(ATTIKOS_KOKKOS_CUDA_ARCHITECTURES "${architectures}" PARENT_SCOPE)
endfunction()

# C++20 mode is what gives Kokkos its mdspan-based View; a C++17 build cannot be mixed with it.
function(attikos_check_kokkos_standard origin)
  set(standard "${Kokkos_CXX_STANDARD}")
  if(NOT standard AND TARGET Kokkos::kokkoscore)
    get_target_property(features Kokkos::kokkoscore INTERFACE_COMPILE_FEATURES)
    if(features MATCHES "cxx_std_([0-9]+)")
      set(standard "${CMAKE_MATCH_1}")
    endif()
  endif()
  if(standard AND standard LESS 20)
    message(FATAL_ERROR
      "Attikos: Kokkos (${origin}) was built as C++${standard}; Attikos needs one built with "
      "-DCMAKE_CXX_STANDARD=20.")
  endif()
  if(Kokkos_VERSION AND Kokkos_VERSION VERSION_LESS ATTIKOS_KOKKOS_MINIMUM)
    message(FATAL_ERROR
      "Attikos: Kokkos ${Kokkos_VERSION} (${origin}) is too old; Attikos needs ${ATTIKOS_KOKKOS_MINIMUM} "
      "or newer.")
  endif()
endfunction()

# Routes 1 and 2. A macro, because find_package's variables must reach the caller's scope.
macro(attikos_find_kokkos)
  set(ATTIKOS_KOKKOS_ORIGIN "")
  set(ATTIKOS_KOKKOS_DIR "")
  if(TARGET Kokkos::kokkos)
    set(ATTIKOS_KOKKOS_ORIGIN "existing target")
    if(Kokkos_DIR)
      set(ATTIKOS_KOKKOS_DIR "${Kokkos_DIR}")
    endif()
  elseif(NOT ATTIKOS_KOKKOS_SOURCE_DIR)
    # A place that the user names must work: silently downloading another Kokkos would hide the mistake.
    set(attikos_kokkos_named "")
    foreach(attikos_place Kokkos_DIR Kokkos_ROOT)
      if(${attikos_place})
        set(attikos_kokkos_named "${attikos_place}=${${attikos_place}}")
      elseif(DEFINED ENV{${attikos_place}})
        set(attikos_kokkos_named "${attikos_place}=$ENV{${attikos_place}}")
      endif()
    endforeach()
    # Global, so that a project with Attikos as a subdirectory can link Attikos::attikos anywhere.
    set(attikos_saved_global "${CMAKE_FIND_PACKAGE_TARGETS_GLOBAL}")
    set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
    find_package(Kokkos ${ATTIKOS_KOKKOS_MINIMUM} CONFIG QUIET)
    set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL "${attikos_saved_global}")
    if(Kokkos_FOUND)
      set(ATTIKOS_KOKKOS_ORIGIN "${Kokkos_DIR}")
      set(ATTIKOS_KOKKOS_DIR "${Kokkos_DIR}")
    elseif(attikos_kokkos_named)
      message(FATAL_ERROR
        "Attikos: no Kokkos >= ${ATTIKOS_KOKKOS_MINIMUM} at ${attikos_kokkos_named} "
        "(seen there: ${Kokkos_CONSIDERED_CONFIGS} ${Kokkos_CONSIDERED_VERSIONS}).")
    elseif(Kokkos_CONSIDERED_VERSIONS)
      message(STATUS "Attikos: installed Kokkos ${Kokkos_CONSIDERED_VERSIONS} is too old, not used")
    endif()
    unset(attikos_kokkos_named)
    unset(attikos_saved_global)
    unset(attikos_place)
  endif()
endmacro()

# CUDA 13 changed two signatures that Kokkos 4.7.00 uses; 4.7.01 and later have this fix upstream.
function(attikos_fix_kokkos_for_cuda13 source_dir)
  set(file "${source_dir}/core/src/Cuda/Kokkos_Cuda_Instance.hpp")
  file(READ "${file}" text)
  foreach(site graph prefetch)
    if(site STREQUAL "graph")
      set(old "    return cudaGraphAddDependencies(graph, from, to, numDependencies);\n")
      set(new "    return cudaGraphAddDependencies(graph, from, to, nullptr, numDependencies);\n")
    else()
      set(old "    return cudaMemPrefetchAsync(devPtr, count, dstDevice, m_stream);\n")
      string(CONCAT new
        "    cudaMemLocation location{};\n"
        "    location.type = dstDevice == cudaCpuDeviceId ? cudaMemLocationTypeHost\n"
        "                                                 : cudaMemLocationTypeDevice;\n"
        "    location.id = dstDevice == cudaCpuDeviceId ? 0 : dstDevice;\n"
        "    return cudaMemPrefetchAsync(devPtr, count, location, 0, m_stream);\n")
    endif()
    string(FIND "${text}" "${old}" position)
    if(position EQUAL -1)
      message(FATAL_ERROR "Attikos: the CUDA 13 fix does not fit ${file}: not found: ${old}")
    endif()
    string(REPLACE "${old}" "#if CUDART_VERSION >= 13000\n${new}#else\n${old}#endif\n" text "${text}")
  endforeach()
  file(WRITE "${file}" "${text}")
endfunction()

# A default for an option of Kokkos; what the user gave wins.
macro(attikos_kokkos_default name value)
  if(NOT DEFINED ${name})
    set(${name} ${value} CACHE BOOL "")
  endif()
endmacro()

# Routes 3 and 4. A function, so that the settings for Kokkos do not reach anything else.
function(attikos_add_kokkos)
  if(ATTIKOS_KOKKOS_SOURCE_DIR)
    set(source "${ATTIKOS_KOKKOS_SOURCE_DIR}")
    if(NOT EXISTS "${source}/core/src/Kokkos_Core.hpp")
      message(FATAL_ERROR "Attikos: ATTIKOS_KOKKOS_SOURCE_DIR=${source} is no Kokkos source folder.")
    endif()
    set(origin "source folder ${source}")
  else()
    # What a build reads: no tests, examples, benchmarks or documents.
    set(paths LICENSE Copyright.txt CMakeLists.txt cmake bin/kokkos_launch_compiler bin/nvcc_wrapper bin/hpcbind
        tpls/desul tpls/mdspan example/CMakeLists.txt benchmarks/CMakeLists.txt)
    foreach(part core containers algorithms simd)
      list(APPEND paths ${part}/CMakeLists.txt ${part}/src)
    endforeach()
    list(TRANSFORM paths PREPEND tpls/kokkos/)
    attikos_obtain_pypi(root ${ATTIKOS_PIN_PYGENTEN} PATHS ${paths} AS kokkos-src CARRIES "Kokkos 4.7.00"
      MANIFEST "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/kokkos-4.7.00.sha256"
      OTHERWISE "Bring a Kokkos >= ${ATTIKOS_KOKKOS_MINIMUM} of your own: -DKokkos_ROOT=<install prefix> or \
-DATTIKOS_KOKKOS_SOURCE_DIR=<source folder>.")
    set(source "${root}/tpls/kokkos")
    if(root_FRESH)
      attikos_fix_kokkos_for_cuda13("${source}")
    endif()
    # Its sources are small and its headers are not, so they are compiled as one; of this version it is known to work.
    set(CMAKE_UNITY_BUILD ON)
    set(CMAKE_UNITY_BUILD_BATCH_SIZE 0)
    set(origin "the pinned archive")
  endif()

  set(CMAKE_CXX_STANDARD 20)
  set(CMAKE_CXX_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
  attikos_kokkos_default(Kokkos_ENABLE_SERIAL ON)
  if(NOT DEFINED Kokkos_ENABLE_OPENMP AND NOT Kokkos_ENABLE_THREADS AND NOT Kokkos_ENABLE_HPX)
    find_package(OpenMP QUIET COMPONENTS CXX)
    attikos_kokkos_default(Kokkos_ENABLE_OPENMP ${OpenMP_CXX_FOUND})
  endif()
  if(Kokkos_ENABLE_CUDA)
    # Built by nvcc 13.0, the View that 4.7.00 makes of mdspan loses its pointer in some kernels: on a GPU
    # deep_copy(view, value) ends in an illegal address. Kokkos itself avoids it for nvcc 12.9.
    attikos_kokkos_default(Kokkos_ENABLE_IMPL_VIEW_LEGACY ON)
  endif()
  attikos_kokkos_default(Kokkos_ENABLE_TESTS OFF)
  attikos_kokkos_default(Kokkos_ENABLE_EXAMPLES OFF)
  attikos_kokkos_default(Kokkos_ENABLE_BENCHMARKS OFF)
  set(CMAKE_MESSAGE_LOG_LEVEL NOTICE)  # Kokkos tells a page about itself
  # SYSTEM: warnings are asked of our own headers, not of these.
  add_subdirectory("${source}" "${ATTIKOS_DEPS_DIR}/kokkos-build" SYSTEM)
  get_directory_property(version DIRECTORY "${source}" DEFINITION Kokkos_VERSION)
  set(Kokkos_VERSION "${version}" PARENT_SCOPE)
  set(ATTIKOS_KOKKOS_ORIGIN "${origin}" PARENT_SCOPE)
  set(ATTIKOS_KOKKOS_DIR "${ATTIKOS_DEPS_DIR}/kokkos-build" PARENT_SCOPE)
endfunction()
