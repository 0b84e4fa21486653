// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The communicator of a test program.
#pragma once

#include <attikos/distributed/communicator.hpp>

namespace attikos::test {

inline distributed::Communicator*& current_ranks() {
  static distributed::Communicator* communicator = nullptr;
  return communicator;
}
inline distributed::Communicator& ranks() { return *current_ranks(); }

}  // namespace attikos::test
