# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# What configuring says to users: of a build without a type, once; why a component is missing. And what Attikos hands
# on to their targets: no architecture. Nothing is compiled.
#   cmake -D SOURCE=<consumer> -D WORK=<scratch folder> -D GENERATOR=... -D CXX_COMPILER=... -D PACKAGE=<arguments that
#         find the package> -D SUBDIRECTORY=<that add the sources> -D FETCHCONTENT=<that fetch them>
#         -D KOKKOS_NAMES_ARCHITECTURE=<bool> -D HAVE_CUDA=<bool> -P configure_consumer.cmake
cmake_minimum_required(VERSION 3.25)

set(warning "header-only, and consumer would be compiled without optimization")
macro(configure folder)
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${SOURCE}" -B "${WORK}/${folder}" -G "${GENERATOR}"
                          "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}" ${ARGN}
                  RESULT_VARIABLE code OUTPUT_VARIABLE log ERROR_VARIABLE log)
  string(REGEX REPLACE "[ \n]+" " " log "${log}")  # messages are wrapped
endmacro()

# expect(<what> SAYS|SILENT <folder> <arguments>...)
function(expect what how folder)
  configure(${folder} ${ARGN})
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${what}: configuring failed (${code}):\n${log}")
  endif()
  string(REGEX MATCHALL "${warning}" found "${log}")
  list(LENGTH found count)
  if(how STREQUAL "SAYS" AND NOT count EQUAL 1)
    message(FATAL_ERROR "${what}: expected one warning, got ${count}:\n${log}")
  elseif(how STREQUAL "SILENT" AND NOT count EQUAL 0)
    message(FATAL_ERROR "${what}: expected no warning:\n${log}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK}")
foreach(way PACKAGE SUBDIRECTORY FETCHCONTENT)
  expect("${way} without a build type" SAYS ${way} ${${way}})
  expect("${way} again" SILENT ${way})
  expect("${way} in Debug on purpose" SILENT ${way} -DCMAKE_BUILD_TYPE=Debug)
  expect("${way} without a type once more" SAYS ${way} -DCMAKE_BUILD_TYPE=)
endforeach()
expect("Release" SILENT release ${PACKAGE} -DCMAKE_BUILD_TYPE=Release)
expect("flags of the user's" SILENT flags ${PACKAGE} "-DCMAKE_CXX_FLAGS=-g -O2")
expect("a type that the project sets later" SILENT later ${PACKAGE} -DCONSUMER_SETS=build_type)
expect("a target with flags of its own" SILENT own ${PACKAGE} -DCONSUMER_SETS=options)
expect("nothing that links Attikos" SILENT nothing ${PACKAGE} -DCONSUMER_SETS=nothing)

# An architecture would come with Kokkos's or Attikos's usage requirements.
if(NOT KOKKOS_NAMES_ARCHITECTURE)
  foreach(way PACKAGE SUBDIRECTORY)
    configure(commands-${way} ${${way}} -DCMAKE_BUILD_TYPE=Release -DCMAKE_EXPORT_COMPILE_COMMANDS=ON)
    file(READ "${WORK}/commands-${way}/compile_commands.json" commands)
    string(JSON length LENGTH "${commands}")
    math(EXPR last "${length} - 1")
    set(seen FALSE)
    foreach(i RANGE ${last})
      string(JSON file GET "${commands}" ${i} file)
      string(JSON command GET "${commands}" ${i} command)
      if(file STREQUAL "${SOURCE}/main.cpp")
        set(seen TRUE)
        if(command MATCHES "-m(arch|cpu|tune|avx)")
          message(FATAL_ERROR "${way}: the consumer is compiled for an architecture it did not ask for: ${command}")
        endif()
      endif()
    endforeach()
    if(NOT seen)
      message(FATAL_ERROR "${way}: no command compiles the consumer: ${commands}")
    endif()
  endforeach()
endif()

# Components.
configure(unknown ${PACKAGE} -DCMAKE_BUILD_TYPE=Release -DCONSUMER_COMPONENTS=cobol)
if(code EQUAL 0 OR NOT log MATCHES "component cobol: this Attikos has no component of this name; there are cuda, c, fortran, mpi and nccl")
  message(FATAL_ERROR "an unknown component: ${log}")
endif()
configure(cuda ${PACKAGE} -DCMAKE_BUILD_TYPE=Release -DCONSUMER_COMPONENTS=cuda)
if(HAVE_CUDA)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "component cuda, which is there: ${log}")
  endif()
elseif(code EQUAL 0 OR
       NOT log MATCHES "component cuda: this Attikos was built without the CUDA companion: (its Kokkos has no CUDA back end|ATTIKOS_ENABLE_CUDA_COMPANION was off|no CUDA compiler was found)")
  message(FATAL_ERROR "component cuda, which is missing: ${log}")
endif()
# What the library is used with is looked for where it is used.
if(NOT HAVE_CUDA)
  configure(nccl ${PACKAGE} -DCMAKE_BUILD_TYPE=Release -DCONSUMER_COMPONENTS=nccl -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON)
  if(code EQUAL 0 OR NOT log MATCHES "component nccl: no NCCL was found, or no CUDA toolkit")
    message(FATAL_ERROR "component nccl, which is missing: ${log}")
  endif()
endif()
message(STATUS "users are told what they need to know")
