# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The same suites over NCCL, in processes that run_ranks.py starts. NCCL has a GPU for each rank.

set(ATTIKOS_TEST_NCCL_RANKS "1;2" CACHE STRING "Numbers of ranks that tests over NCCL run on, at most that of the GPUs")
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)

add_library(attikos_nccl_support OBJECT main.cpp launch_nccl.cpp)
target_include_directories(attikos_nccl_support PUBLIC "${PROJECT_SOURCE_DIR}/tests")
target_link_libraries(attikos_nccl_support PUBLIC Attikos::nccl GTest::gtest attikos_development_flags
  attikos_quick_to_compile)
target_compile_definitions(attikos_nccl_support PUBLIC ATTIKOS_TEST_${cases}_CASES)
attikos_target_language(attikos_nccl_support)

# attikos_add_nccl_test(<name> SOURCES <file>...)
function(attikos_add_nccl_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE attikos_nccl_support)
  attikos_target_language(${name})
  add_dependencies(attikos_distributed_tests ${name})
  foreach(ranks IN LISTS ATTIKOS_TEST_NCCL_RANKS)
    add_test(NAME distributed.${name}.on_${ranks} COMMAND Python3::Interpreter
      "${CMAKE_CURRENT_SOURCE_DIR}/run_ranks.py" -n ${ranks} --seconds 280 $<TARGET_FILE:${name}>)
    set_tests_properties(distributed.${name}.on_${ranks} PROPERTIES LABELS "distributed;gpu" TIMEOUT 300 RUN_SERIAL ON)
  endforeach()
endfunction()

attikos_add_nccl_test(nccl_context_attention SOURCES test_context_attention.cpp test_agreement.cpp)
attikos_add_nccl_test(nccl_communicator SOURCES test_communicator.cpp test_nccl_on_gpus.cpp)
attikos_add_nccl_test(nccl_spread_decode SOURCES test_spread_decode.cpp)
attikos_add_nccl_test(nccl_context_types SOURCES test_context_types.cpp test_plan_memory.cpp)
attikos_add_nccl_test(nccl_context_backward SOURCES test_context_backward.cpp)
attikos_add_nccl_test(nccl_tensor_parallel SOURCES test_tensor_parallel.cpp test_redistribute.cpp)
