# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Archives that are at hand are used, unpacked in part and compared with their manifest; whatever does not fit is
# refused. Nothing is downloaded here.
#   cmake -D ROOT=<repository> -D WORK=<scratch folder> -P obtain_archive.cmake
cmake_minimum_required(VERSION 3.25)

if(CALL)  # one call in a process of its own, since an error ends it
  include("${ROOT}/cmake/ObtainArchive.cmake")
  set(ATTIKOS_DEPS_DIR "${WORK}/deps")
  attikos_obtain_pypi(root NAME fake VERSION 1.0 FILE fake-1.0.tar.gz SHA256 "${HASH}" ROOT fake-1.0 PATHS a b/two
    AS fake-src CARRIES "Something 2.3" MANIFEST "${WORK}/manifest" OTHERWISE "Do without.")
  message(STATUS "got ${root}, fresh ${root_FRESH}")
  return()
endif()

file(REMOVE_RECURSE "${WORK}")
file(WRITE "${WORK}/fake-1.0/a/one" "1\n")
file(WRITE "${WORK}/fake-1.0/a/.hidden" "0\n")
file(WRITE "${WORK}/fake-1.0/b/two" "2\n")
file(WRITE "${WORK}/fake-1.0/b/three" "3\n")  # not among PATHS
file(MAKE_DIRECTORY "${WORK}/archives")
execute_process(COMMAND "${CMAKE_COMMAND}" -E tar czf archives/fake-1.0.tar.gz fake-1.0
                WORKING_DIRECTORY "${WORK}" COMMAND_ERROR_IS_FATAL ANY)
file(SHA256 "${WORK}/archives/fake-1.0.tar.gz" hash)
set(manifest "# where it came from\n")
foreach(file a/.hidden a/one b/two)
  file(SHA256 "${WORK}/fake-1.0/${file}" one)
  string(APPEND manifest "${one}  ${file}\n")
endforeach()

# expect(<regular expression of the output> <archive folder> <hash> <manifest> [KEEP])
function(expect text archives hash manifest)
  if(NOT "KEEP" IN_LIST ARGN)
    file(REMOVE_RECURSE "${WORK}/deps")
  endif()
  file(WRITE "${WORK}/manifest" "${manifest}")
  # No Python: a call that would download fails at once.
  execute_process(COMMAND "${CMAKE_COMMAND}" -D CALL=ON -D "ROOT=${ROOT}" -D "WORK=${WORK}" -D "HASH=${hash}"
                          -D "ATTIKOS_ARCHIVE_DIR=${archives}" -D ATTIKOS_PYTHON= -P "${CMAKE_CURRENT_LIST_FILE}"
                  OUTPUT_VARIABLE log ERROR_VARIABLE log)
  string(REGEX REPLACE "[ \n]+" " " log "${log}")  # error messages are wrapped
  if(NOT log MATCHES "${text}")
    message(FATAL_ERROR "expected ${text}, got: ${log}")
  endif()
endfunction()

set(good "Something 2.3, carried by fake 1.0 \\(fake-1.0.tar.gz\\).*fake-src/fake-1.0, fresh TRUE")
expect("${good}" "${WORK}/archives" "${hash}" "${manifest}")
if(EXISTS "${WORK}/deps/fake-src/fake-1.0/b/three" OR NOT EXISTS "${WORK}/archives/fake-1.0.tar.gz")
  message(FATAL_ERROR "too much was unpacked, or the user's archive is gone")
endif()
expect("Something 2.3, carried by fake 1.0.*fresh FALSE" "" "${hash}" "${manifest}" KEEP)
expect("ATTIKOS_ARCHIVE_DIR=.*nowhere has no fake-1.0.tar.gz \\(SHA-256 ${hash}\\), which carries Something 2.3"
       "${WORK}/nowhere" "${hash}" "${manifest}")
string(REPEAT "0" 64 zeros)
expect("fake-1.0.tar.gz has SHA-256 ${hash} but ${zeros} is pinned" "${WORK}/archives" "${zeros}" "${manifest}")
string(REGEX REPLACE "[0-9a-f]+(  a/one)" "${zeros}\\1" wrong "${manifest}")
expect("does not hold the files of manifest: a/one has SHA-256 [0-9a-f]+, expected ${zeros}" "${WORK}/archives"
       "${hash}" "${wrong}")
expect("a/four is missing" "${WORK}/archives" "${hash}" "${manifest}${zeros}  a/four\n")
string(REGEX REPLACE "[0-9a-f]+  a/.hidden\n" "" short "${manifest}")
expect("a/.hidden is not listed" "${WORK}/archives" "${hash}" "${short}")
if(EXISTS "${WORK}/deps/fake-src")
  message(FATAL_ERROR "what was refused lies where it would be taken for good")
endif()
expect("not `<SHA-256>  ?<path>`: nonsense" "${WORK}/archives" "${hash}" "nonsense\n")
message(STATUS "archives at hand are used as they should be")
