# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# benchmark::benchmark: an existing target, an installed package, the distribution's packages unpacked into the
# build tree. Needed only where ATTIKOS_BUILD_PERF is on.
include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/ObtainArchive.cmake")

function(attikos_provide_googlebenchmark)
  if(TARGET benchmark::benchmark)
    return()
  endif()
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
  find_package(benchmark CONFIG QUIET)
  if(TARGET benchmark::benchmark)
    message(STATUS "Attikos: Google Benchmark ${benchmark_VERSION} from ${benchmark_DIR}")
    return()
  endif()
  set(otherwise "Install Google Benchmark, or build without perf: -DATTIKOS_BUILD_PERF=OFF.")
  attikos_obtain_debian(root PACKAGES libbenchmark-dev FOLLOW "^libbenchmark[0-9]" AS googlebenchmark
    OTHERWISE "${otherwise}")
  file(GLOB_RECURSE library "${root}/usr/lib/*/libbenchmark.so")
  if(NOT library)
    message(FATAL_ERROR "Attikos: the package libbenchmark-dev holds no libbenchmark.so. ${otherwise}")
  endif()
  find_package(Threads REQUIRED)
  add_library(benchmark::benchmark SHARED IMPORTED GLOBAL)
  set_target_properties(benchmark::benchmark PROPERTIES
    IMPORTED_LOCATION "${library}" INTERFACE_INCLUDE_DIRECTORIES "${root}/usr/include"
    INTERFACE_LINK_LIBRARIES Threads::Threads)
  message(STATUS "Attikos: Google Benchmark from ${root}")
endfunction()
