// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Text for the caller's memory.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "status.hpp"

namespace attikos::c {

/// Where a function that answers with text puts it.
struct TextResult {
  char* text;
  std::size_t size;
  std::size_t* length;

  void check(char const* operation) const {
    if (text == nullptr && size > 0)
      fail(ATTIKOS_NULL_ARGUMENT, operation, ": text is null but has room for ", size,
           " bytes; expected memory, or size 0");
  }
  /// As much as there is room for, with a zero behind it; the length is that of the whole.
  void put(std::string const& result) const {
    if (length != nullptr) *length = result.size();
    if (size == 0) return;
    std::size_t const count = std::min(result.size(), size - 1);
    std::memcpy(text, result.data(), count);
    text[count] = '\0';
  }
};

}  // namespace attikos::c
