// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The types of errors.
#include <gtest/gtest.h>

#include <attikos/core/error.hpp>
#include <stdexcept>
#include <type_traits>

namespace attikos::test {
namespace {

TEST(Errors, FormOneHierarchy) {
  EXPECT_TRUE((std::is_base_of_v<std::runtime_error, Error>));
  EXPECT_TRUE((std::is_base_of_v<Error, ShapeError>));
  EXPECT_TRUE((std::is_base_of_v<Error, DtypeError>));
  EXPECT_TRUE((std::is_base_of_v<Error, StrideError>));
  EXPECT_TRUE((std::is_base_of_v<Error, DeviceError>));
  EXPECT_TRUE((std::is_base_of_v<Error, UnsupportedError>));
  EXPECT_TRUE((std::is_base_of_v<Error, ResourceError>));
}

}  // namespace
}  // namespace attikos::test
