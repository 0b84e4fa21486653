# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# attikos_expect_optimization(): a word to users whose build names no type. CMake's empty default means no
# optimization, and the kernels of a header-only library are compiled in the user's own build: attention runs an
# order of magnitude slower. Part of the installed package.
include_guard(GLOBAL)

# Looks when the whole project has been read, since a build type may be set at any place of it. Silent where a type
# was named, Debug on purpose as well as any other, where flags say -O, and where nothing links Attikos::attikos.
function(attikos_expect_optimization)
  get_property(multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
  get_property(asked GLOBAL PROPERTY ATTIKOS_EXPECTS_OPTIMIZATION)
  if(CMAKE_BUILD_TYPE)
    unset(ATTIKOS_WARNED_UNOPTIMIZED CACHE)
  endif()
  if(multi_config OR asked OR CMAKE_BUILD_TYPE)
    return()
  endif()
  set_property(GLOBAL PROPERTY ATTIKOS_EXPECTS_OPTIMIZATION TRUE)  # one look, however often Attikos is found
  cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL attikos_warn_unoptimized)
endfunction()

function(attikos_warn_unoptimized)
  if(CMAKE_BUILD_TYPE OR CMAKE_CXX_FLAGS MATCHES "(^| )-O")
    unset(ATTIKOS_WARNED_UNOPTIMIZED CACHE)
    return()
  endif()
  attikos_find_unoptimized(found "${CMAKE_SOURCE_DIR}")
  if(NOT found OR ATTIKOS_WARNED_UNOPTIMIZED)
    return()
  endif()
  list(JOIN found ", " found)
  message(WARNING
    "Attikos is header-only, and ${found} would be compiled without optimization: no build type is set, and "
    "attention runs about ten times slower than it could. Configure with -DCMAKE_BUILD_TYPE=Release, or with "
    "-DCMAKE_BUILD_TYPE=Debug if that is what you want; this is said once.")
  set(ATTIKOS_WARNED_UNOPTIMIZED TRUE CACHE INTERNAL "The warning about a missing build type was given")
endfunction()

# Targets below a folder that link Attikos::attikos and have no -O of their own.
function(attikos_find_unoptimized out folder)
  set(found "")
  get_property(targets DIRECTORY "${folder}" PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(libraries ${target} LINK_LIBRARIES)
    get_target_property(interface ${target} INTERFACE_LINK_LIBRARIES)
    get_target_property(options ${target} COMPILE_OPTIONS)
    if("${libraries};${interface}" MATCHES "Attikos::attikos" AND NOT options MATCHES "(^|;)-O")
      list(APPEND found ${target})
    endif()
  endforeach()
  get_property(folders DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
  foreach(below IN LISTS folders)
    attikos_find_unoptimized(more "${below}")
    list(APPEND found ${more})
  endforeach()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()
