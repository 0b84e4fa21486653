# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Target `rapidcheck`: an existing target, an installed package, the distribution's package unpacked into the
# build tree.
include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/ObtainArchive.cmake")

function(attikos_provide_rapidcheck)
  if(TARGET rapidcheck)
    return()
  endif()
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
  find_package(rapidcheck CONFIG QUIET)
  if(TARGET rapidcheck)
    message(STATUS "Attikos: RapidCheck from ${rapidcheck_DIR}")
    return()
  endif()
  attikos_obtain_debian(root PACKAGES librapidcheck-dev AS rapidcheck
    OTHERWISE "Install RapidCheck, or build without the property tests: -DATTIKOS_ENABLE_RAPIDCHECK=OFF.")
  file(GLOB_RECURSE library "${root}/usr/lib/*/librapidcheck.a")
  if(NOT library OR NOT EXISTS "${root}/usr/include/rapidcheck.h")
    message(FATAL_ERROR "Attikos: the package librapidcheck-dev holds no librapidcheck.a. Install RapidCheck, or "
                        "build without the property tests: -DATTIKOS_ENABLE_RAPIDCHECK=OFF.")
  endif()
  add_library(rapidcheck STATIC IMPORTED GLOBAL)
  set_target_properties(rapidcheck PROPERTIES
    IMPORTED_LOCATION "${library}" INTERFACE_INCLUDE_DIRECTORIES "${root}/usr/include")
  message(STATUS "Attikos: RapidCheck from ${root}")
endfunction()
