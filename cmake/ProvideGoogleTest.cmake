# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# GTest::gtest: an existing target, an installed package, a source folder, the pinned archive.
include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/ObtainArchive.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/PinnedArchives.cmake")

function(attikos_provide_googletest)
  if(TARGET GTest::gtest)
    return()
  endif()
  if(NOT ATTIKOS_GOOGLETEST_SOURCE_DIR)
    set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
    find_package(GTest CONFIG QUIET)
    if(TARGET GTest::gtest)
      message(STATUS "Attikos: GoogleTest ${GTest_VERSION} from ${GTest_DIR}")
      return()
    endif()
    attikos_obtain_pypi(root ${ATTIKOS_PIN_PYGENTEN} PATHS tpls/googletest AS googletest-src
      CARRIES "GoogleTest 1.15.2" OTHERWISE "Install GoogleTest, give -DATTIKOS_GOOGLETEST_SOURCE_DIR=<source folder>, or build without \
tests: -DATTIKOS_BUILD_TESTS=OFF.")
    set(source "${root}/tpls/googletest")
  else()
    set(source "${ATTIKOS_GOOGLETEST_SOURCE_DIR}")
  endif()
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)  # the variables below win over the subproject's options
  set(INSTALL_GTEST OFF)
  set(BUILD_GMOCK OFF)
  set(BUILD_SHARED_LIBS OFF)
  set(CMAKE_CXX_STANDARD 20)
  add_subdirectory("${source}" "${ATTIKOS_DEPS_DIR}/googletest-build" EXCLUDE_FROM_ALL SYSTEM)
  message(STATUS "Attikos: GoogleTest from ${source}")
endfunction()
