// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a call throws.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>

namespace attikos::test {

/// As text; the type is checked.
template <class E, class F>
std::string thrown(F const& f) {
  try {
    f();
  } catch (E const& error) {
    return error.what();
  } catch (std::exception const& error) {
    ADD_FAILURE() << "another type: " << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace attikos::test
