// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The kernel of the compiled companion that appends to a cache.
#pragma once

#include <attikos/abi/append_kv.hpp>
#include <attikos/abi/device.hpp>
#include <attikos/abi/verdict.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

/// Keys and values into a cache, rotated on the way, from sm_80 on: threads find a token's place
/// once and take its features through registers for several heads, up to 16 bytes at a time
/// where addresses allow that, four elements of what is rotated or converted.
///
/// - New elements and cache are both float64, float32, float16, bfloat16, float8_e4m3 or
///   float8_e5m2, or the cache is narrower: float32 to 16 bits and float8, 16 bits to float8.
///   Converted round to nearest, overflow to infinity (float8_e4m3: NaN). Queries and what becomes
///   of them have the type of the new keys; tables are float64, float32,
///   float16 or bfloat16.
/// - Any strides and addresses, head dims, padded or packed tokens, pages of any size, tables of
///   either width, partial and interleaved rotation. What needs no rotation and no other type is
///   copied as it is, NaN included.
/// - Rotated in float32, float64 in float64.
/// - `accepts` makes no CUDA call; `launch` is one launch, asynchronous, allocates nothing, reads
///   lengths, offsets and tables on the device only, may be captured, and is deterministic. On
///   sm_90 it may begin before the launch ahead of it in the stream has ended, and waits for that
///   one's results before it reads or writes anything.
///
/// Source: J. Su et al., "RoFormer", arXiv:2104.09864, for the rotation.
struct AppendKvSm80Simt {
  static constexpr char const* name = "append_kv/sm80_simt";
  static constexpr AppendKvOptionSet takes{AppendKvOption::cu_seqlens_new,
                                           AppendKvOption::new_lengths,
                                           AppendKvOption::cache_lengths,
                                           AppendKvOption::page_table,
                                           AppendKvOption::cos,
                                           AppendKvOption::sin,
                                           AppendKvOption::interleaved,
                                           AppendKvOption::half_width,
                                           AppendKvOption::q,
                                           AppendKvOption::q_out,
                                           AppendKvOption::cu_seqlens_q,
                                           AppendKvOption::queries_share_position};
  static Verdict accepts(AppendKvArgs const& args, Device const& device) noexcept;
  static int launch(AppendKvArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
