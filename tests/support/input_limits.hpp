// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What a fuzzer may take that runs without libFuzzer: ten seconds for an input, a gigabyte for all
/// of them.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

namespace attikos::test {

/// Once, before threads begin. What is wanted beyond it is not given, as where memory runs out.
inline void limit_memory() {
  // A sanitizer reserves more addresses than there is memory, and so does CUDA.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(ATTIKOS_TEST_WITH_CUDA)
  constexpr bool limited = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  constexpr bool limited = false;
#else
  constexpr bool limited = true;
#endif
#else
  constexpr bool limited = true;
#endif
  constexpr rlim_t most = rlim_t{1} << 30;
  rlimit const limit{most, most};
  if (limited && ::setrlimit(RLIMIT_AS, &limit) != 0) std::perror("setrlimit");
}

/// Before each input: one that takes longer ends the program.
inline void limit_seconds() { ::alarm(10); }

}  // namespace attikos::test
