// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// How much precision a call allows float32 products to lose.
#pragma once

#include <attikos/abi/dtype.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Least precision of float32 products: `tf32` may round factors to 11 significant bits, `tf32x3`
/// splits each into two such numbers and drops the product of the lesser ones.
enum class Compute : std::uint8_t { ieee, tf32, tf32x3 };

namespace abi {
using ::attikos::ATTIKOS_VERSION_NAMESPACE::Compute;
}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
