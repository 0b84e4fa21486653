# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# nlohmann_json::nlohmann_json: an installed one, else the pinned archive's.
include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/ObtainArchive.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/PinnedArchives.cmake")

# attikos_provide_json(<option that builds without what needs it>)
function(attikos_provide_json without)
  if(TARGET nlohmann_json::nlohmann_json)
    return()
  endif()
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
  find_package(nlohmann_json 3.9 CONFIG QUIET)
  if(TARGET nlohmann_json::nlohmann_json)
    return()
  endif()
  attikos_obtain_pypi(json ${ATTIKOS_PIN_PYGENTEN} PATHS tpls/json/single_include AS nlohmann-json
    CARRIES "nlohmann's JSON 3.11.3" OTHERWISE "Install nlohmann-json3-dev, or build without what reads it: ${without}.")
  add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED GLOBAL)
  target_include_directories(nlohmann_json::nlohmann_json INTERFACE "${json}/tpls/json/single_include")
endfunction()
