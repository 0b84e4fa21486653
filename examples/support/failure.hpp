// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What goes wrong because of the user's input. main() turns each into one line and an exit status.
#pragma once

#include <stdexcept>

namespace sentence_search {

/// Something in the files or texts that were given: exit status 1.
struct DataError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Something in the command line itself: exit status 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace sentence_search
