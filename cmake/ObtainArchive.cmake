# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The only places that reach for the network: one for PyPI archives, one for Debian packages. Both write
# below ATTIKOS_DEPS_DIR only, need no root, and do nothing when the stamp of an earlier run fits.
include_guard(GLOBAL)

# The last lines of a program's output, for an error message.
function(attikos_last_lines out text)
  string(STRIP "${text}" text)
  string(REGEX REPLACE "[;\r]" " " text "${text}")
  string(REGEX MATCH "([^\n]*\n)?([^\n]*\n)?[^\n]*$" text "${text}")
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

# attikos_check_manifest(<folder> <manifest> <what>): the files below <folder> are those of <manifest>, no more and
# no less, and have its hashes. Lines as sha256sum writes them; those that begin with # say where it came from.
function(attikos_check_manifest folder manifest what)
  file(STRINGS "${manifest}" lines REGEX "^[^#]")
  set(known "")
  set(bad "")
  foreach(line IN LISTS lines)
    if(NOT line MATCHES "^([0-9a-f]+)  (.+)$")
      message(FATAL_ERROR "Attikos: ${manifest}: not `<SHA-256>  <path>`: ${line}")
    endif()
    set(wanted "${CMAKE_MATCH_1}")
    set(path "${CMAKE_MATCH_2}")
    list(APPEND known "${path}")
    if(NOT EXISTS "${folder}/${path}")
      string(APPEND bad "\n  ${path} is missing")
      continue()
    endif()
    file(SHA256 "${folder}/${path}" have)
    if(NOT have STREQUAL wanted)
      string(APPEND bad "\n  ${path} has SHA-256 ${have}, expected ${wanted}")
    endif()
  endforeach()
  file(GLOB_RECURSE unknown RELATIVE "${folder}" "${folder}/*")
  list(REMOVE_ITEM unknown ${known})
  foreach(path IN LISTS unknown)
    string(APPEND bad "\n  ${path} is not listed")
  endforeach()
  if(bad)
    get_filename_component(name "${manifest}" NAME)
    message(FATAL_ERROR "Attikos: ${what} does not hold the files of ${name}:${bad}")
  endif()
endfunction()

# attikos_find_pip(<out>): the command of a pip, or empty. -I, because the Python that builds a wheel is shown
# packages of its own, without pip (PYTHONPATH; pip's, uv's and build's isolation): -I looks past that, and where
# even then there is no pip, as in an environment made for the build, another Python on PATH may have it.
function(attikos_find_pip out)
  set(${out} "" PARENT_SCOPE)
  find_program(ATTIKOS_PYTHON NAMES python3 python DOC "Python with pip, used to download archives")
  mark_as_advanced(ATTIKOS_PYTHON)
  if(NOT ATTIKOS_PYTHON)
    return()
  endif()
  set(candidates "${ATTIKOS_PYTHON}")
  file(TO_CMAKE_PATH "$ENV{PATH}" folders)
  foreach(folder IN LISTS folders)
    list(APPEND candidates "${folder}/python3" "${folder}/python")
  endforeach()
  list(REMOVE_DUPLICATES candidates)
  foreach(candidate IN LISTS candidates)
    if(EXISTS "${candidate}")
      execute_process(COMMAND "${candidate}" -I -m pip --version RESULT_VARIABLE code OUTPUT_QUIET ERROR_QUIET)
      if(code EQUAL 0)
        set(${out} "${candidate}" -I -m pip PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
endfunction()

# attikos_obtain_build_requirements(<out-dir-var> <whose> <pip>...): a folder for PYTHONPATH with what source archives
# need for their metadata to be read.
function(attikos_obtain_build_requirements out whose)
  set(folder "${ATTIKOS_DEPS_DIR}/archive-build-requirements")
  set(${out} "${folder}" PARENT_SCOPE)
  set(requirements "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/archive_build_requirements.txt")
  file(SHA256 "${requirements}" stamp_text)
  set(stamp "${folder}/.attikos-obtained")
  if(EXISTS "${stamp}")
    file(READ "${stamp}" found)
    if(found STREQUAL stamp_text)
      return()
    endif()
  endif()
  file(REMOVE_RECURSE "${folder}" "${folder}.part")
  execute_process(
    COMMAND ${ARGN} install --target "${folder}.part" --no-deps --only-binary ":all:" --require-hashes --no-cache-dir
            --disable-pip-version-check --retries 2 --progress-bar off --quiet -r "${requirements}"
    RESULT_VARIABLE code OUTPUT_VARIABLE log ERROR_VARIABLE log TIMEOUT 600)
  if(NOT code EQUAL 0)
    attikos_last_lines(reason "${log}")
    message(FATAL_ERROR "Attikos: could not obtain with pip what ${whose} needs to be downloaded "
                        "(archive_build_requirements.txt).\npip said: ${reason}")
  endif()
  file(RENAME "${folder}.part" "${folder}")
  file(WRITE "${stamp}" "${stamp_text}")
endfunction()

# attikos_obtain_pypi(<out-dir-var>
#   NAME <project> VERSION <version> FILE <file name on PyPI> SHA256 <hash>
#   ROOT <top folder inside the archive> PATHS <path below ROOT>... AS <folder below ATTIKOS_DEPS_DIR>
#   CARRIES <what is wanted of it, for the log> [MANIFEST <file>]
#   OTHERWISE <what the user can do instead> [DISCARD_ARCHIVE])
# Takes the archive from ATTIKOS_ARCHIVE_DIR where that is set, else downloads it with pip, which checks the hash
# before it runs anything of the archive, and unpacks PATHS only, which are compared with MANIFEST.
# The unpacked ROOT is returned in <out-dir-var>; <out-dir-var>_FRESH says whether it was unpacked just now.
function(attikos_obtain_pypi out)
  cmake_parse_arguments(PARSE_ARGV 1 arg "DISCARD_ARCHIVE"
                        "NAME;VERSION;FILE;SHA256;ROOT;AS;CARRIES;MANIFEST;OTHERWISE" "PATHS")
  message(STATUS "Attikos: ${arg_CARRIES}, carried by ${arg_NAME} ${arg_VERSION} (${arg_FILE})")
  set(folder "${ATTIKOS_DEPS_DIR}/${arg_AS}")
  set(stamp "${folder}/.attikos-obtained")
  set(stamp_text "${arg_FILE} ${arg_SHA256} ${arg_PATHS}\n")
  set(${out} "${folder}/${arg_ROOT}" PARENT_SCOPE)
  set(${out}_FRESH FALSE PARENT_SCOPE)
  if(EXISTS "${stamp}")
    file(READ "${stamp}" found)
    if(found STREQUAL stamp_text)
      return()
    endif()
  endif()

  set(archives "${ATTIKOS_DEPS_DIR}/archives")
  set(archive "${archives}/${arg_FILE}")
  set(have "")
  if(EXISTS "${archive}")
    file(SHA256 "${archive}" have)
  endif()
  if(NOT have STREQUAL arg_SHA256 AND ATTIKOS_ARCHIVE_DIR)
    # A place that the user names must work: silently downloading would hide the mistake.
    set(archive "${ATTIKOS_ARCHIVE_DIR}/${arg_FILE}")
    if(NOT EXISTS "${archive}")
      message(FATAL_ERROR "Attikos: ATTIKOS_ARCHIVE_DIR=${ATTIKOS_ARCHIVE_DIR} has no ${arg_FILE} (SHA-256 "
                          "${arg_SHA256}), which carries ${arg_CARRIES}. Put it there, or: ${arg_OTHERWISE}")
    endif()
    file(SHA256 "${archive}" have)
    if(NOT have STREQUAL arg_SHA256)
      message(FATAL_ERROR "Attikos: ${archive} has SHA-256 ${have} but ${arg_SHA256} is pinned.")
    endif()
    set(arg_DISCARD_ARCHIVE FALSE)  # it is the user's
  endif()
  if(NOT have STREQUAL arg_SHA256)
    attikos_find_pip(pip)
    if(NOT pip)
      message(FATAL_ERROR
        "Attikos: no Python with pip to download ${arg_NAME} ${arg_VERSION} with. Put ${arg_FILE} (SHA-256 "
        "${arg_SHA256}) into a folder and name it with -DATTIKOS_ARCHIVE_DIR=<folder>, or: ${arg_OTHERWISE}")
    endif()
    message(STATUS "Attikos: downloading ${arg_FILE}")
    file(MAKE_DIRECTORY "${archives}")
    set(requirements "${archives}/${arg_NAME}.txt")
    file(WRITE "${requirements}" "${arg_NAME}==${arg_VERSION} --hash=sha256:${arg_SHA256}\n")
    set(environment "")
    if(arg_FILE MATCHES "\\.whl$")
      set(kind --only-binary "${arg_NAME}")
    else()
      attikos_obtain_build_requirements(site "${arg_NAME} ${arg_VERSION}" ${pip})
      set(environment "PYTHONPATH=${site}")
      set(kind --no-binary "${arg_NAME}" --no-build-isolation)
    endif()
    execute_process(
      COMMAND "${CMAKE_COMMAND}" -E env ${environment} ${pip} download --no-deps ${kind} --require-hashes
              --no-cache-dir --disable-pip-version-check --retries 2 --progress-bar off -d "${archives}"
              -r "${requirements}"
      RESULT_VARIABLE code OUTPUT_VARIABLE log ERROR_VARIABLE log TIMEOUT 1200)
    if(NOT code EQUAL 0 OR NOT EXISTS "${archive}")
      attikos_last_lines(reason "${log}")
      message(FATAL_ERROR
        "Attikos: could not download ${arg_NAME} ${arg_VERSION} with pip. ${arg_OTHERWISE}\n"
        "pip said: ${reason}")
    endif()
    file(SHA256 "${archive}" have)
    if(NOT have STREQUAL arg_SHA256)
      file(REMOVE "${archive}")
      message(FATAL_ERROR "Attikos: ${arg_FILE} has SHA-256 ${have} but ${arg_SHA256} is pinned.")
    endif()
  endif()

  # Into a folder of its own first, so that an interrupted run leaves nothing that looks complete.
  file(REMOVE_RECURSE "${folder}" "${folder}.part")
  set(patterns ${arg_PATHS})
  list(TRANSFORM patterns PREPEND "${arg_ROOT}/")
  file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${folder}.part" PATTERNS ${patterns})
  foreach(path IN LISTS arg_PATHS)
    if(NOT EXISTS "${folder}.part/${arg_ROOT}/${path}")
      message(FATAL_ERROR "Attikos: ${arg_FILE} does not hold ${arg_ROOT}/${path}.")
    endif()
  endforeach()
  if(arg_MANIFEST)
    attikos_check_manifest("${folder}.part/${arg_ROOT}" "${arg_MANIFEST}" "${arg_FILE}")
  endif()
  file(RENAME "${folder}.part" "${folder}")
  file(WRITE "${stamp}" "${stamp_text}")
  if(arg_DISCARD_ARCHIVE)
    file(REMOVE "${archive}")
  endif()
  set(${out}_FRESH TRUE PARENT_SCOPE)
endfunction()

# Downloads packages into <work>; an error names them and says what else the user can do.
function(attikos_download_debian work otherwise)
  # The sandbox user of apt cannot write into a user's build tree.
  set(sandbox -o "APT::Sandbox::User=")
  execute_process(COMMAND "${ATTIKOS_APT_GET}" ${sandbox} -q download ${ARGN}
                  WORKING_DIRECTORY "${work}" RESULT_VARIABLE code OUTPUT_VARIABLE log ERROR_VARIABLE log
                  TIMEOUT 600)
  if(NOT code EQUAL 0)
    set(apt "${work}/apt")
    file(MAKE_DIRECTORY "${apt}/lists/partial" "${apt}/cache/archives/partial")
    set(own ${sandbox} -o "Dir::State::lists=${apt}/lists" -o "Dir::Cache=${apt}/cache"
            -o "Dir::State::status=/var/lib/dpkg/status")
    execute_process(COMMAND "${ATTIKOS_APT_GET}" ${own} -q update
                    RESULT_VARIABLE code OUTPUT_VARIABLE log ERROR_VARIABLE log TIMEOUT 600)
    if(code EQUAL 0)
      execute_process(COMMAND "${ATTIKOS_APT_GET}" ${own} -q download ${ARGN}
                      WORKING_DIRECTORY "${work}" RESULT_VARIABLE code OUTPUT_VARIABLE log
                      ERROR_VARIABLE log TIMEOUT 600)
    endif()
    file(REMOVE_RECURSE "${apt}")
  endif()
  if(NOT code EQUAL 0)
    attikos_last_lines(reason "${log}")
    list(JOIN ARGN " " names)
    message(FATAL_ERROR
      "Attikos: could not download the packages ${names}. ${otherwise}\napt-get said: ${reason}")
  endif()
endfunction()

# attikos_obtain_debian(<out-dir-var> PACKAGES <name>... [FOLLOW <regex>] AS <folder> OTHERWISE <text>)
# Downloads the distribution's packages and unpacks them with dpkg-deb; nothing is installed. Where the
# machine's package lists are missing or stale, lists of our own are fetched below ATTIKOS_DEPS_DIR. FOLLOW: of
# the packages' own dependencies, those whose names match come along (their names differ by release).
function(attikos_obtain_debian out)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "AS;OTHERWISE;FOLLOW" "PACKAGES")
  set(folder "${ATTIKOS_DEPS_DIR}/${arg_AS}")
  set(stamp "${folder}/.attikos-obtained")
  set(stamp_text "${arg_PACKAGES} ${arg_FOLLOW}\n")
  set(${out} "${folder}" PARENT_SCOPE)
  if(EXISTS "${stamp}")
    file(READ "${stamp}" found)
    if(found STREQUAL stamp_text)
      return()
    endif()
  endif()

  find_program(ATTIKOS_APT_GET apt-get)
  find_program(ATTIKOS_DPKG_DEB dpkg-deb)
  mark_as_advanced(ATTIKOS_APT_GET ATTIKOS_DPKG_DEB)
  list(JOIN arg_PACKAGES " " names)
  if(NOT ATTIKOS_APT_GET OR NOT ATTIKOS_DPKG_DEB)
    message(FATAL_ERROR "Attikos: no apt-get and dpkg-deb to obtain ${names} with. ${arg_OTHERWISE}")
  endif()
  message(STATUS "Attikos: downloading the packages ${names}")
  set(work "${ATTIKOS_DEPS_DIR}/archives/${arg_AS}")
  file(REMOVE_RECURSE "${folder}" "${folder}.part" "${work}")
  file(MAKE_DIRECTORY "${work}" "${folder}.part")
  attikos_download_debian("${work}" "${arg_OTHERWISE}" ${arg_PACKAGES})
  file(GLOB packages "${work}/*.deb")
  if(arg_FOLLOW)
    set(more "")
    foreach(package IN LISTS packages)
      execute_process(COMMAND "${ATTIKOS_DPKG_DEB}" -f "${package}" Depends OUTPUT_VARIABLE depends)
      string(REGEX MATCHALL "[a-z0-9][a-z0-9.+-]+" depends "${depends}")
      list(FILTER depends INCLUDE REGEX "${arg_FOLLOW}")
      list(APPEND more ${depends})
    endforeach()
    list(REMOVE_DUPLICATES more)
    if(more)
      attikos_download_debian("${work}" "${arg_OTHERWISE}" ${more})
      file(GLOB packages "${work}/*.deb")
    endif()
  endif()
  foreach(package IN LISTS packages)
    execute_process(COMMAND "${ATTIKOS_DPKG_DEB}" -x "${package}" "${folder}.part"
                    RESULT_VARIABLE code ERROR_VARIABLE log)
    if(NOT code EQUAL 0)
      message(FATAL_ERROR "Attikos: could not unpack ${package}: ${log}")
    endif()
  endforeach()
  file(RENAME "${folder}.part" "${folder}")
  file(WRITE "${stamp}" "${stamp_text}")
  file(REMOVE_RECURSE "${work}")
endfunction()
