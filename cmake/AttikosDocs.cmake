# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The documentation site: cmake --build <build> --target docs puts it into <build>/docs/html. It needs doxygen and dot
# (Graphviz); what it needs of Python is obtained into <build>/docs/venv by docs/requirements.txt, unless
# ATTIKOS_DOCS_PYTHON names an interpreter that has it. Nothing of Attikos is compiled for it.
include_guard(GLOBAL)

set(ATTIKOS_DOCS_PYTHON "" CACHE FILEPATH "Python with what docs/requirements.txt lists; empty: obtained for the target docs")
find_package(Python3 3.10 QUIET COMPONENTS Interpreter)
find_program(ATTIKOS_DOXYGEN doxygen)
find_program(ATTIKOS_DOT dot)
if(NOT Python3_Interpreter_FOUND OR NOT ATTIKOS_DOXYGEN OR NOT ATTIKOS_DOT)
  add_custom_target(docs
    COMMAND "${CMAKE_COMMAND}" -E echo "Attikos: the site needs doxygen, dot (Graphviz) and Python 3.10 or newer"
    COMMAND "${CMAKE_COMMAND}" -E false VERBATIM)
  return()
endif()

set(folder "${PROJECT_BINARY_DIR}/docs")
set(python "${ATTIKOS_DOCS_PYTHON}")
set(obtained "")
if(NOT python)
  set(python "${folder}/venv/bin/python")
  set(obtained "${folder}/venv/obtained")
  add_custom_command(OUTPUT "${obtained}"
    COMMAND Python3::Interpreter -m venv "${folder}/venv"
    COMMAND "${python}" -m pip install --quiet --disable-pip-version-check --only-binary :all:
            -r "${PROJECT_SOURCE_DIR}/docs/requirements.txt"
    COMMAND "${CMAKE_COMMAND}" -E touch "${obtained}"
    DEPENDS "${PROJECT_SOURCE_DIR}/docs/requirements.txt" VERBATIM
    COMMENT "Obtaining what the site is built with")
endif()
add_custom_target(docs
  COMMAND "${CMAKE_COMMAND}" -E env "CXX=${CMAKE_CXX_COMPILER}" "${python}" -m sphinx --quiet --fail-on-warning
          --keep-going -j 2 -b html -d "${folder}/doctrees" "${PROJECT_SOURCE_DIR}/docs" "${folder}/html"
  COMMAND "${python}" "${PROJECT_SOURCE_DIR}/tests/docs/check_site.py" "${PROJECT_SOURCE_DIR}" "${folder}/html"
  DEPENDS ${obtained} VERBATIM COMMENT "Building the site")
