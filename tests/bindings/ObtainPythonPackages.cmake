# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# attikos_obtain_python_packages(<out-dir-var>): a folder with the Python packages that the tests import, to be put
# into PYTHONPATH; empty where the interpreter has them itself. Wheels differ by interpreter, so that pip picks
# them, by versions that these tests were written for; they go below ATTIKOS_DEPS_DIR and nowhere else.
include_guard(GLOBAL)
include("${PROJECT_SOURCE_DIR}/cmake/ObtainArchive.cmake")

function(attikos_obtain_python_packages out)
  set(wanted "numpy>=1.26,<3" "ml_dtypes>=0.4,<1" "apache-tvm-ffi>=0.1.15,<0.2")
  set(probe "import numpy, ml_dtypes, tvm_ffi; assert tuple(map(int, numpy.__version__.split('.')[:2])) >= (1, 26)")
  set(${out} "" PARENT_SCOPE)
  execute_process(COMMAND "${Python3_EXECUTABLE}" -c "${probe}" RESULT_VARIABLE code OUTPUT_QUIET ERROR_QUIET)
  if(code EQUAL 0)
    return()
  endif()
  set(folder "${ATTIKOS_DEPS_DIR}/python-${Python3_VERSION_MAJOR}.${Python3_VERSION_MINOR}")
  set(${out} "${folder}" PARENT_SCOPE)
  set(stamp "${folder}/.attikos-obtained")
  if(EXISTS "${stamp}")
    file(READ "${stamp}" found)
    if(found STREQUAL "${wanted}")
      return()
    endif()
  endif()
  message(STATUS "Attikos: downloading numpy, ml_dtypes and apache-tvm-ffi for the tests")
  file(REMOVE_RECURSE "${folder}" "${folder}.part")
  execute_process(
    COMMAND "${Python3_EXECUTABLE}" -I -m pip install --target "${folder}.part" --only-binary ":all:" --no-cache-dir
            --disable-pip-version-check --retries 2 --progress-bar off --quiet ${wanted}
    RESULT_VARIABLE code OUTPUT_VARIABLE log ERROR_VARIABLE log TIMEOUT 600)
  if(NOT code EQUAL 0)
    attikos_last_lines(reason "${log}")
    message(FATAL_ERROR
      "Attikos: could not obtain numpy, ml_dtypes and apache-tvm-ffi for the tests of the Python package. Install them for "
      "${Python3_EXECUTABLE}, or build without it: -DATTIKOS_BUILD_C=OFF.\npip said: ${reason}")
  endif()
  file(RENAME "${folder}.part" "${folder}")
  file(WRITE "${stamp}" "${wanted}")
endfunction()
