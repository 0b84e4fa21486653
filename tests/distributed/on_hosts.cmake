# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Ranks of mpiexec.

set(attikos_ranks 1 2 3 4 8)
set(attikos_environment OMP_NUM_THREADS=1 OMP_PROC_BIND=false KOKKOS_DISABLE_WARNINGS=1
  # More ranks than cores, which are to leave them to each other, and of which Open MPI wants to be told; as root in
  # containers.
  OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_ALLOW_RUN_AS_ROOT=1
  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)

add_library(attikos_distributed_support OBJECT main.cpp)
target_include_directories(attikos_distributed_support PUBLIC "${PROJECT_SOURCE_DIR}/tests")
target_link_libraries(attikos_distributed_support PUBLIC Attikos::mpi GTest::gtest attikos_development_flags
  attikos_quick_to_compile)
target_compile_definitions(attikos_distributed_support PUBLIC ATTIKOS_TEST_${cases}_CASES)
attikos_target_language(attikos_distributed_support)
attikos_precompile(attikos_distributed_support <gtest/gtest.h> <attikos/attikos.hpp>)

# The launcher, and NCCL's stand-in, whose folder has an <nccl.h>.
add_library(attikos_ranks_on_hosts OBJECT launch_on_hosts.cpp nccl_on_hosts/nccl_on_hosts.cpp)
target_include_directories(attikos_ranks_on_hosts PRIVATE "${PROJECT_SOURCE_DIR}/tests"
  "${CMAKE_CURRENT_SOURCE_DIR}/nccl_on_hosts")
target_link_libraries(attikos_ranks_on_hosts PRIVATE Attikos::mpi attikos_development_flags)
attikos_target_language(attikos_ranks_on_hosts)

# attikos_add_distributed_test(<name> SOURCES <file>... [RANKS <number>...] [TRANSPORTS <mpi|nccl>...])
function(attikos_add_distributed_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;RANKS;TRANSPORTS")
  if(NOT arg_RANKS)
    set(arg_RANKS ${attikos_ranks})
  endif()
  if(NOT arg_TRANSPORTS)
    set(arg_TRANSPORTS mpi nccl)
  endif()
  add_executable(${name} ${arg_SOURCES} $<TARGET_OBJECTS:attikos_ranks_on_hosts>)
  target_link_libraries(${name} PRIVATE attikos_distributed_support)
  attikos_precompile(${name} REUSE_FROM attikos_distributed_support)
  attikos_target_language(${name})
  # One source: all of them instantiate the same calls.
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  add_dependencies(attikos_distributed_tests ${name})
  foreach(ranks IN LISTS arg_RANKS)
    foreach(transport IN LISTS arg_TRANSPORTS)
      set(test distributed.${name}.on_${ranks})
      if(transport STREQUAL "nccl")
        set(test distributed.nccl.${name}.on_${ranks})
      endif()
      add_test(NAME ${test} COMMAND
        ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${MPIEXEC_PREFLAGS} $<TARGET_FILE:${name}> ${MPIEXEC_POSTFLAGS})
      set_tests_properties(${test} PROPERTIES LABELS distributed TIMEOUT 120 PROCESSORS 2
        ENVIRONMENT "${attikos_environment};ATTIKOS_TEST_TRANSPORT=${transport}")
    endforeach()
  endforeach()
endfunction()

find_package(MPI QUIET COMPONENTS CXX)  # for MPIEXEC_EXECUTABLE, which is set in the scope that asks
attikos_add_distributed_test(test_shards SOURCES test_shards.cpp RANKS 1 TRANSPORTS mpi)
attikos_add_distributed_test(test_context_attention SOURCES test_context_attention.cpp test_agreement.cpp
  test_communicator.cpp test_mpi_communicator.cpp test_spread_decode.cpp)
attikos_add_distributed_test(test_context_types SOURCES test_context_types.cpp test_plan_memory.cpp)
attikos_add_distributed_test(test_context_backward SOURCES test_context_backward.cpp)
attikos_add_distributed_test(test_tensor_parallel SOURCES test_tensor_parallel.cpp test_redistribute.cpp)
attikos_add_distributed_test(test_nccl_transport SOURCES test_nccl_transport.cpp TRANSPORTS nccl)
target_include_directories(test_nccl_transport PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/nccl_on_hosts")

# A rank that is killed somewhere in the middle.
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
add_test(NAME distributed.lost_rank COMMAND Python3::Interpreter "${CMAKE_CURRENT_SOURCE_DIR}/lost_rank.py" 3 30
  ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 3 ${MPIEXEC_PREFLAGS} $<TARGET_FILE:test_context_attention>)
set_tests_properties(distributed.lost_rank PROPERTIES LABELS distributed TIMEOUT 3600 PROCESSORS 2
  ENVIRONMENT "${attikos_environment}")

# What the reference's page of several devices shows.
add_executable(docs_spread "${PROJECT_SOURCE_DIR}/docs/examples/spread.cpp")
target_link_libraries(docs_spread PRIVATE Attikos::mpi attikos_development_flags attikos_quickest_to_compile)
attikos_target_language(docs_spread)
add_dependencies(attikos_distributed_tests docs_spread)
foreach(ranks IN ITEMS 1 3)
  add_test(NAME distributed.docs_spread.on_${ranks} COMMAND
    ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${MPIEXEC_PREFLAGS} $<TARGET_FILE:docs_spread> ${MPIEXEC_POSTFLAGS})
  set_tests_properties(distributed.docs_spread.on_${ranks} PROPERTIES LABELS "distributed;docs" TIMEOUT 120 PROCESSORS 2
    PASS_REGULAR_EXPRESSION "all parts ran" FAIL_REGULAR_EXPRESSION "wrong:" ENVIRONMENT "${attikos_environment}")
endforeach()

if(NOT ATTIKOS_BUILD_EXAMPLES)  # which have more to build than this one
  add_subdirectory("${PROJECT_SOURCE_DIR}/examples/long_context" long_context)
endif()

# Each header compiles alone and survives being included twice.
file(GLOB headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/include"
     "${PROJECT_SOURCE_DIR}/include/attikos/distributed/*.hpp")
set(header_sources "")
foreach(header IN LISTS headers)
  string(MAKE_C_IDENTIFIER "${header}" name)
  set(source "${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "#include <@header@>\n#include <@header@>  // twice\n" @ONLY)
  list(APPEND header_sources "${source}")
endforeach()
add_library(attikos_distributed_header_tests OBJECT ${header_sources})
target_include_directories(attikos_distributed_header_tests PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/nccl_on_hosts")
target_link_libraries(attikos_distributed_header_tests PRIVATE Attikos::mpi attikos_development_flags)
target_compile_options(attikos_distributed_header_tests PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
attikos_target_language(attikos_distributed_header_tests)
attikos_precompile(attikos_distributed_header_tests <Kokkos_Core.hpp>)
add_dependencies(attikos_distributed_tests attikos_distributed_header_tests)

# Whoever sends over NCCL needs no MPI.
set(without_mpi "${CMAKE_CURRENT_BINARY_DIR}/without_mpi.cpp")
file(CONFIGURE OUTPUT "${without_mpi}" @ONLY CONTENT "#include <attikos/distributed/attention_backward.hpp>
#include <attikos/distributed/tensor_parallel.hpp>
#ifdef MPI_VERSION
#error mpi.h was included
#endif
")
add_library(attikos_distributed_without_mpi OBJECT "${without_mpi}")
target_include_directories(attikos_distributed_without_mpi PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/nccl_on_hosts")
target_compile_definitions(attikos_distributed_without_mpi PRIVATE ATTIKOS_WITH_NCCL)
target_link_libraries(attikos_distributed_without_mpi PRIVATE Attikos::attikos attikos_development_flags)
target_compile_options(attikos_distributed_without_mpi PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
attikos_target_language(attikos_distributed_without_mpi)
add_dependencies(attikos_distributed_tests attikos_distributed_without_mpi)
