// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A fuzzer of the C interface: an input is read as a call of c_calls.h and changes to it. What a
// model of the interface says must be refused is, in its status; what is refused has written
// nothing; what is not has written the elements of its outputs alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace attikos::test {

/// Makes the call that `size` bytes say. "" or what does not hold.
std::string fuzz_c_calls(unsigned char const* bytes, std::size_t size);

/// Calls made that succeeded, and those that were refused.
struct FuzzCounts {
  long accepted = 0, refused = 0;
};
FuzzCounts const& fuzz_counts();

}  // namespace attikos::test
