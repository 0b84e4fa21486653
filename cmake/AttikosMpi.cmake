# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Attikos::mpi: Attikos::attikos with the MPI that is found here. Of this tree and of the package, which carries none:
# the headers of include/attikos/distributed are compiled with the MPI of whoever uses them. MPI_CXX_COMPILER=mpicxx.mpich
# chooses among several.
include_guard(GLOBAL)

# attikos_add_mpi(<found>): sets <found> to whether there is an MPI, and adds the target if there is.
function(attikos_add_mpi found)
  if(NOT TARGET Attikos::mpi)
    set(MPI_CXX_SKIP_MPICXX ON)  # the C interface is what is called
    find_package(MPI QUIET COMPONENTS CXX)
    if(MPI_CXX_FOUND)
      add_library(Attikos::mpi INTERFACE IMPORTED GLOBAL)
      target_link_libraries(Attikos::mpi INTERFACE Attikos::attikos MPI::MPI_CXX)
      target_compile_definitions(Attikos::mpi INTERFACE ATTIKOS_WITH_MPI)
      set_target_properties(MPI::MPI_CXX PROPERTIES IMPORTED_GLOBAL ON)
    endif()
  endif()
  if(TARGET Attikos::mpi)
    set(${found} TRUE PARENT_SCOPE)
  else()
    set(${found} FALSE PARENT_SCOPE)
  endif()
endfunction()
