// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An operator new for a whole program, Kokkos, the standard library and libattikos included, that
// fails when it is told to: a program has it that links failing_allocator.cpp.
#pragma once

#include <atomic>

namespace attikos::test {

constexpr long never = -1;
inline std::atomic<long> until_fault{never};  ///< allocations that still succeed
inline std::atomic<long> alive{0};            ///< allocations that were not freed

/// Calls with the n-th allocation failing, n from 0 on. Whether it failed and the call returned all
/// the same; what it throws passes.
template <class F>
bool fails(long nth, F const& call) {
  struct Scope {
    explicit Scope(long n) { until_fault = n; }
    ~Scope() { until_fault = never; }
  } const scope(nth);
  call();
  return until_fault == never;
}

}  // namespace attikos::test
