// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file Limits of the hardware, which shapes of kernels are checked against.
///
/// Source: CUDA C++ Programming Guide 13.0, "Compute Capabilities": "Technical Specifications per
/// Compute Capability".
#pragma once

#include <attikos/config.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// Shared memory that a block may have: by itself, on sm_75 all that there is, on any card from
/// sm_80 on (of sm_86 and sm_89), on sm_80 itself, and on Hopper.
constexpr int unlimited_shared_bytes = 48 * 1024;  ///< without being allowed to
constexpr int sm75_shared_bytes = 64 * 1024;
constexpr int sm80_shared_bytes = 99 * 1024;
constexpr int a100_shared_bytes = 163 * 1024;
constexpr int sm90_shared_bytes = 227 * 1024;

/// Shared memory of a Hopper multiprocessor, and what of it the system takes for every block.
constexpr int sm90_multiprocessor_bytes = 228 * 1024;
constexpr int reserved_shared_bytes = 1024;

/// The most of its own that each of `blocks` blocks of a Hopper multiprocessor may have.
constexpr int sm90_share_of_shared(int blocks) {
  return sm90_multiprocessor_bytes / blocks - reserved_shared_bytes;
}
static_assert(sm90_share_of_shared(1) == sm90_shared_bytes);

/// Blocks of a grid along x, and along y or z.
constexpr std::int64_t most_blocks_x = 0x7fffffff, most_blocks_yz = 0xffff;

/// Registers of a multiprocessor, all of which one block may use.
constexpr int multiprocessor_registers = 65536;

}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
