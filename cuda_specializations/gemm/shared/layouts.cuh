// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Where the unit strides of A and B are, as kernels' symbols have it.
#pragma once

#include <attikos/config.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace layouts {

/// As BLAS says it of Cᵀ = Bᵀ·Aᵀ in columns: T of A and N of B along K, the others along M and N.
template <bool MnMajorA, bool MnMajorB>
struct Majors {
  static constexpr bool mn_a = MnMajorA, mn_b = MnMajorB;
};
struct TN : Majors<false, false> {};
struct TT : Majors<false, true> {};
struct NN : Majors<true, false> {};
struct NT : Majors<true, true> {};

/// Calls `use` with the layout of a call whose unit strides are, or are not, along K.
template <class Use>
auto with_layout(bool mn_a, bool mn_b, Use use) {
  if (mn_a) return mn_b ? use(NT{}) : use(NN{});
  return mn_b ? use(TT{}) : use(TN{});
}

}  // namespace layouts
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
