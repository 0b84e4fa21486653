// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// A number that two lists of numbers have in common if they are the same, and else hardly ever.
#pragma once

#include <attikos/config.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// FNV-1a over 64-bit words.
class Fingerprint {
 public:
  void mix(std::int64_t number) {
    hash_ = (hash_ ^ static_cast<std::uint64_t>(number)) * 0x100000001b3u;
    hash_ ^= hash_ >> 29;  // the product alone carries nothing down
  }
  std::uint64_t value() const { return hash_; }
  /// Without a sign, for what ranks compare.
  std::int64_t number() const { return static_cast<std::int64_t>(hash_ >> 1); }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325u;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
