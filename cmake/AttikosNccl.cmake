# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Attikos::nccl: Attikos::attikos with the NCCL that is found here. Of this tree and of the package, which carries none.
# NCCL_ROOT says where it is: a prefix with include and lib, such as the folder nvidia/nccl of the Python package
# nvidia-nccl-cu13.
include_guard(GLOBAL)

# attikos_add_nccl(<found>): sets <found> to whether there is an NCCL, and adds the target if there is.
function(attikos_add_nccl found)
  if(NOT TARGET Attikos::nccl)
    find_path(ATTIKOS_NCCL_INCLUDE_DIR nccl.h HINTS ${NCCL_ROOT} $ENV{NCCL_ROOT} PATH_SUFFIXES include)
    # Python's package has no libnccl.so.
    find_library(ATTIKOS_NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR HINTS ${NCCL_ROOT} $ENV{NCCL_ROOT} PATH_SUFFIXES lib lib64)
    mark_as_advanced(ATTIKOS_NCCL_INCLUDE_DIR ATTIKOS_NCCL_LIBRARY)
    if(ATTIKOS_NCCL_INCLUDE_DIR AND ATTIKOS_NCCL_LIBRARY)
      find_package(CUDAToolkit QUIET)  # nccl.h includes its headers
    endif()
    if(ATTIKOS_NCCL_INCLUDE_DIR AND ATTIKOS_NCCL_LIBRARY AND CUDAToolkit_FOUND)
      add_library(Attikos::nccl INTERFACE IMPORTED GLOBAL)
      target_include_directories(Attikos::nccl INTERFACE "${ATTIKOS_NCCL_INCLUDE_DIR}")
      target_compile_definitions(Attikos::nccl INTERFACE ATTIKOS_WITH_NCCL)
      target_link_libraries(Attikos::nccl INTERFACE Attikos::attikos "${ATTIKOS_NCCL_LIBRARY}" CUDA::cudart)
    endif()
  endif()
  if(TARGET Attikos::nccl)
    set(${found} TRUE PARENT_SCOPE)
  else()
    set(${found} FALSE PARENT_SCOPE)
  endif()
endfunction()
