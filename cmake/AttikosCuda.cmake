# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Decides whether CUDA is needed as a language and whether the companion is built. Included at file scope
# between finding and adding Kokkos, because enable_language must come before a Kokkos that needs it.

attikos_describe_kokkos()

option(ATTIKOS_ENABLE_CUDA_COMPANION
       "Build the CUDA companion Attikos::cuda (default: on when Kokkos has CUDA)" ${ATTIKOS_KOKKOS_HAS_CUDA})

set(ATTIKOS_HAVE_CUDA_COMPANION OFF)  # Attikos::attikos carries the companion
set(ATTIKOS_BUILD_CUDA_COMPANION ${ATTIKOS_ENABLE_CUDA_COMPANION})

if(ATTIKOS_BUILD_CUDA_COMPANION OR ATTIKOS_KOKKOS_LANGUAGE STREQUAL "CUDA")
  if(CMAKE_VERSION VERSION_LESS 3.26)
    message(FATAL_ERROR
      "Attikos: CUDA as a language needs CMake >= 3.26, this is ${CMAKE_VERSION} (3.25 silently drops "
      "-std=c++20 for nvcc); a newer one comes with `pip install cmake`.")
  endif()
  # Only what a target does not set for itself; Kokkos's own architecture is the honest default.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND ATTIKOS_KOKKOS_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES "${ATTIKOS_KOKKOS_CUDA_ARCHITECTURES}")
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
  elseif(ATTIKOS_KOKKOS_LANGUAGE STREQUAL "CUDA")
    message(FATAL_ERROR
      "Attikos: Kokkos compiles as CUDA but no CUDA compiler was found; set CMAKE_CUDA_COMPILER.")
  else()
    set(ATTIKOS_BUILD_CUDA_COMPANION OFF)
  endif()
endif()

if(ATTIKOS_KOKKOS_HAS_CUDA)
  if(ATTIKOS_BUILD_CUDA_COMPANION)
    set(ATTIKOS_HAVE_CUDA_COMPANION ON)
  else()
    set(attikos_kind WARNING)
    if(ATTIKOS_REQUIRE_CUDA_COMPANION)
      set(attikos_kind FATAL_ERROR)
    endif()
    message(${attikos_kind}
      "Attikos: Kokkos has CUDA but the companion Attikos::cuda is not built (ATTIKOS_ENABLE_CUDA_COMPANION="
      "${ATTIKOS_ENABLE_CUDA_COMPANION}, CUDA compiler: ${CMAKE_CUDA_COMPILER}); only portable kernels run.")
    unset(attikos_kind)
  endif()
elseif(ATTIKOS_ENABLE_CUDA_COMPANION AND NOT ATTIKOS_BUILD_CUDA_COMPANION)
  message(FATAL_ERROR "Attikos: ATTIKOS_ENABLE_CUDA_COMPANION=ON but no CUDA compiler was found.")
endif()

# For users of the package who ask for it.
set(ATTIKOS_CUDA_MISSING_BECAUSE "")
if(NOT ATTIKOS_BUILD_CUDA_COMPANION)
  if(NOT ATTIKOS_KOKKOS_HAS_CUDA AND NOT ATTIKOS_ENABLE_CUDA_COMPANION)
    set(ATTIKOS_CUDA_MISSING_BECAUSE "its Kokkos has no CUDA back end (Kokkos_ENABLE_CUDA)")
  elseif(NOT ATTIKOS_ENABLE_CUDA_COMPANION)
    set(ATTIKOS_CUDA_MISSING_BECAUSE "ATTIKOS_ENABLE_CUDA_COMPANION was off")
  else()
    set(ATTIKOS_CUDA_MISSING_BECAUSE "no CUDA compiler was found")
  endif()
endif()
