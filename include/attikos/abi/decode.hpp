// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Arguments of a decode kernel: those of attention, and how the cache is cut up.
#pragma once

#include <attikos/abi/attention.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

/// One attention problem of few queries over a long cache, parts of which are worked on apart.
struct DecodeArgs : AttentionArgs {
  std::int64_t splits = 0;    ///< at most this many parts; 0: the kernel chooses
  void* workspace = nullptr;  ///< as many bytes as the kernel asks for, aligned to 8
};
// Both of these every kernel knows; the rest are the options of AttentionArgs.
static_assert(
    sizeof(DecodeArgs) ==
        sizeof(AttentionArgs) + sizeof(DecodeArgs::splits) + sizeof(DecodeArgs::workspace),
    "attikos: a new member of DecodeArgs is an option that kernels must be able to refuse: "
    "it belongs into AttentionArgs, or into an enumeration like AttentionOption");

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
