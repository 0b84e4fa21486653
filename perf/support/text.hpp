// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Text from parts.
#pragma once

#include <sstream>
#include <string>

namespace attikos::measure {

template <class... Parts>
std::string text(Parts const&... parts) {
  std::ostringstream stream;
  stream.precision(9);
  (stream << ... << parts);
  return stream.str();
}

}  // namespace attikos::measure
