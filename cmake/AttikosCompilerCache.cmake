# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# A build of our own asks a compiler cache first, where there is one, with settings by which it answers in another clone
# too. Whoever names a launcher (CMAKE_CXX_COMPILER_LAUNCHER, also in the environment) has that one.
option(ATTIKOS_USE_CCACHE "Compile through ccache where it is installed" ${PROJECT_IS_TOP_LEVEL})
if(ATTIKOS_USE_CCACHE)
  find_program(ATTIKOS_CCACHE ccache)
  mark_as_advanced(ATTIKOS_CCACHE)
  if(ATTIKOS_CCACHE)
    set(attikos_launcher "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
        CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_ctime,include_file_mtime)
    foreach(attikos_language C CXX CUDA)
      # nvcc reads a file several times, with another __CUDA_ARCH__ each. ccache asks one pass of its preprocessor and
      # would miss a change under another; so it goes by the files that were read.
      set(attikos_more "")
      if(attikos_language STREQUAL "CUDA")
        set(attikos_more CCACHE_DEPEND=1)
      elseif(CMAKE_${attikos_language}_COMPILER_ID MATCHES "Clang" AND UNIX)
        set(attikos_more "${CMAKE_CURRENT_LIST_DIR}/through_ccache.sh")
      endif()
      if(NOT CMAKE_${attikos_language}_COMPILER_LAUNCHER)
        set(CMAKE_${attikos_language}_COMPILER_LAUNCHER ${attikos_launcher} ${attikos_more} "${ATTIKOS_CCACHE}")
      endif()
    endforeach()
    unset(attikos_more)
    unset(attikos_language)
    unset(attikos_launcher)
  endif()
endif()
