// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An error is its type and its text.
#pragma once

#include <gtest/gtest.h>

#include <attikos/core/error.hpp>
#include <initializer_list>
#include <string>

namespace attikos::test {

/// `call` must throw exactly E, and its message must contain every part, in this order.
template <class E, class Call>
void expect_error(Call const& call, std::initializer_list<std::string> parts) {
  try {
    call();
  } catch (E const& error) {
    EXPECT_EQ(typeid(error), typeid(E)) << error.what();
    std::string const text = error.what();
    std::size_t position = 0;
    for (auto const& part : parts) {
      auto const found = text.find(part, position);
      EXPECT_NE(found, std::string::npos)
          << "\"" << part << "\" is not (in this order) in: " << text;
      if (found != std::string::npos) position = found + part.size();
    }
    return;
  } catch (std::exception const& error) {
    ADD_FAILURE() << "another error than expected: " << error.what();
    return;
  }
  std::string wanted;
  for (auto const& part : parts) wanted += part + " ... ";
  ADD_FAILURE() << "no error; expected: " << wanted;
}

}  // namespace attikos::test
