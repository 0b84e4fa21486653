# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Functions that sort the companion's sources into libraries, and link some of them into a program of their own.
include_guard(GLOBAL)

# attikos_cuda_begins_with(<variable> <name> <beginning>...): whether one of these is the name, or what it begins with
# before a `_`.
function(attikos_cuda_begins_with variable name)
  set(${variable} FALSE PARENT_SCOPE)
  foreach(beginning IN LISTS ARGN)
    string(FIND "${name}_" "${beginning}_" position)
    if(position EQUAL 0)
      set(${variable} TRUE PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# attikos_cuda_objects(<target> ARCHITECTURES <list> SOURCES <file>...)
function(attikos_cuda_objects target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "ARCHITECTURES;SOURCES")
  add_library(${target} OBJECT ${arg_SOURCES})
  target_include_directories(${target} PRIVATE
    "${PROJECT_SOURCE_DIR}/include" "${PROJECT_BINARY_DIR}/include" "${CMAKE_CURRENT_SOURCE_DIR}")
  target_compile_features(${target} PRIVATE cuda_std_20)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-Xfatbin=-compress-all;-Xptxas=-v>"
    "$<$<BOOL:${ATTIKOS_ENABLE_FAST_MATH}>:--use_fast_math>")
  # The launcher reads ptxas's notes; one that the user set runs below it.
  set(launcher "${CMAKE_COMMAND}" "-DALLOWANCES=${CMAKE_CURRENT_SOURCE_DIR}/ptxas_allowances.txt"
      -P "${PROJECT_SOURCE_DIR}/cmake/check_ptxas_log.cmake" -- ${CMAKE_CUDA_COMPILER_LAUNCHER})
  set_target_properties(${target} PROPERTIES
    CUDA_ARCHITECTURES "${arg_ARCHITECTURES}"
    CUDA_COMPILER_LAUNCHER "${launcher}"
    CUDA_SEPARABLE_COMPILATION OFF
    POSITION_INDEPENDENT_CODE ON)
  # A static companion shows nothing through the shared library of a user that links it. The shared one has
  # to show its entries, which carry no export attribute; its kernels have internal linkage anyway.
  if(NOT BUILD_SHARED_LIBS)
    set_target_properties(${target} PROPERTIES CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  endif()
  if(TARGET attikos_development_flags)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:attikos_development_flags>)
  endif()
  set_property(GLOBAL APPEND PROPERTY ATTIKOS_CUDA_OBJECTS ${target})
endfunction()

# attikos_cuda_family(<family> ARCHITECTURES <list> SOURCES <file>... [QUICK <name>...])
# A family is built for every architecture that it serves, because sm_80 code does not load on sm_90 and sm_90a
# loads nowhere else. `QUICK`: what a quick build compiles of it, for the last of its real architectures alone.
# Each source that defines kernels of abi/ is an object library together with those that hold parts of them.
function(attikos_cuda_family family)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "ARCHITECTURES;SOURCES;QUICK")
  set(last "${arg_ARCHITECTURES}")
  list(FILTER last INCLUDE REGEX "-real$")
  list(GET last -1 last)
  if(ATTIKOS_CUDA_ARCHITECTURES)
    set(arg_ARCHITECTURES ${ATTIKOS_CUDA_ARCHITECTURES})
    set(last ${ATTIKOS_CUDA_ARCHITECTURES})
  endif()
  set(kernels "")
  foreach(source IN LISTS arg_SOURCES)
    file(STRINGS "${source}" definitions REGEX "::accepts\\(" LIMIT_COUNT 1)
    if(definitions)
      cmake_path(GET source STEM stem)
      list(APPEND kernels ${stem})
      set(${stem}_definitions "${CMAKE_CURRENT_SOURCE_DIR}/${source}")
    endif()
  endforeach()
  foreach(stem IN LISTS kernels)
    set(sources "")
    attikos_cuda_begins_with(is_whole ${stem} ${ATTIKOS_CUDA_WHOLE})
    foreach(source IN LISTS arg_SOURCES)
      cmake_path(GET source STEM name)
      attikos_cuda_begins_with(is_part ${name} ${stem})
      if(is_part)
        list(APPEND sources ${source})
        if(name IN_LIST ATTIKOS_CUDA_WHOLE)
          set(is_whole TRUE)
        endif()
      endif()
    endforeach()
    attikos_cuda_begins_with(is_left_out ${stem} ${ATTIKOS_CUDA_LEAVE_OUT})
    attikos_cuda_begins_with(is_quick ${stem} ${arg_QUICK})
    if(ATTIKOS_CUDA_QUICK AND NOT is_whole)
      set(architectures ${last})
      if(NOT is_quick)
        set(is_left_out TRUE)
      endif()
    else()
      set(architectures ${arg_ARCHITECTURES})
    endif()
    if(NOT is_left_out)
      attikos_cuda_objects(attikos_cuda_${stem} ARCHITECTURES ${architectures} SOURCES ${sources})
      list(APPEND targets attikos_cuda_${stem})
    endif()
    set_property(GLOBAL PROPERTY ATTIKOS_CUDA_${stem}_DEFINITIONS "${${stem}_definitions}")
  endforeach()
  if(NOT family IN_LIST kernels)
    add_custom_target(attikos_cuda_${family} DEPENDS ${targets})
  endif()
  set_property(GLOBAL APPEND PROPERTY ATTIKOS_CUDA_FAMILIES ${family})
  set_property(GLOBAL PROPERTY ATTIKOS_CUDA_${family}_KERNELS ${kernels})
  list(TRANSFORM arg_SOURCES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  set_property(GLOBAL PROPERTY ATTIKOS_CUDA_${family}_SOURCES ${arg_SOURCES})
endfunction()

# attikos_cuda_use(<target> FAMILIES <family>... [ONLY <kernels>...])
# Gives a target the kernels of the families, or of some of their sources. Those that are left out of these, or of
# the build, refuse every call. Nothing else of the companion is built for it.
function(attikos_cuda_use target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "FAMILIES;ONLY")
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:attikos_cuda_common>)
  set(absent "")
  foreach(family IN LISTS arg_FAMILIES)
    get_property(kernels GLOBAL PROPERTY ATTIKOS_CUDA_${family}_KERNELS)
    foreach(stem IN LISTS kernels)
      if(TARGET attikos_cuda_${stem} AND (NOT arg_ONLY OR stem IN_LIST arg_ONLY))
        target_sources(${target} PRIVATE $<TARGET_OBJECTS:attikos_cuda_${stem}>)
      else()
        get_property(definitions GLOBAL PROPERTY ATTIKOS_CUDA_${stem}_DEFINITIONS)
        list(APPEND absent "${definitions}")
      endif()
    endforeach()
  endforeach()
  if(absent)
    attikos_cuda_refuse(${target} ${absent})
  endif()
endfunction()

# attikos_cuda_refuse(<target> <file>...): gives a target the kernels that these sources define, as such that refuse
# every call.
function(attikos_cuda_refuse target)
  set(refusals "${CMAKE_CURRENT_BINARY_DIR}/${target}_refusals.cpp")
  set(script "${PROJECT_SOURCE_DIR}/cuda_specializations/refuse.cmake")
  add_custom_command(OUTPUT "${refusals}"
    COMMAND "${CMAKE_COMMAND}" "-DOUTPUT=${refusals}" -P "${script}" -- ${ARGN}
    DEPENDS ${ARGN} "${script}" VERBATIM)
  add_library(${target}_refusals OBJECT EXCLUDE_FROM_ALL "${refusals}")
  target_include_directories(${target}_refusals PRIVATE
    "${PROJECT_SOURCE_DIR}/include" "${PROJECT_BINARY_DIR}/include")
  target_include_directories(${target}_refusals SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  target_compile_features(${target}_refusals PRIVATE cxx_std_20)
  set_target_properties(${target}_refusals PROPERTIES POSITION_INDEPENDENT_CODE ON)
  if(NOT BUILD_SHARED_LIBS)
    set_target_properties(${target}_refusals PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_refusals>)
endfunction()

# Every name that a user gives has to be the beginning of one of these.
function(attikos_cuda_check_names option)
  foreach(name IN LISTS ${option})
    set(found FALSE)
    foreach(known IN LISTS ARGN)
      attikos_cuda_begins_with(is_it ${known} ${name})
      if(is_it)
        set(found TRUE)
      endif()
    endforeach()
    if(NOT found)
      list(JOIN ARGN " " known)
      message(FATAL_ERROR "Attikos: ${option} names ${name}, which none of the companion's begins with: ${known}")
    endif()
  endforeach()
endfunction()
