// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The C interface under libFuzzer (llvm.org/docs/LibFuzzer.html).
#include "../bindings/fuzz_c_calls.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  auto const wrong = attikos::test::fuzz_c_calls(data, size);
  if (wrong.empty()) return 0;
  std::fprintf(stderr, "%s\n", wrong.c_str());
  std::abort();
}
