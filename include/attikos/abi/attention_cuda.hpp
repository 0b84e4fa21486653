// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Attention kernels of the compiled companion.
#pragma once

#include <attikos/abi/attention.hpp>
#include <attikos/abi/device.hpp>
#include <attikos/abi/verdict.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

/// Flash attention on Hopper's tensor cores by wgmma, fed by the copy engine (TMA); sm_90 alone,
/// since its machine code (sm_90a) loads nowhere else. q, k, v and out are float16.
///
/// - head_dim and head_dim_v from 1 to 256, apart if need be; the kernel works with the next of 32,
/// 64, 96, 128, 192 and 256, or of 64, 128 and 256 with softcap, bias, ALiBi or a scale that is not
/// positive.
/// - q, k and v have a unit stride along head_dim; their addresses and other strides are multiples
/// of 16 bytes (those of heads and batches may be 0). out and lse may have any strides; rows of out
/// whose address and strides are multiples of 16 bytes are stored faster.
/// - Causal masks, windows, softcap, ALiBi, bias (float32, float16, bfloat16; any strides), sinks,
/// lengths, packed sequences, grouped heads. No boolean mask, no pages, no float8 factors.
/// - Scores, weights and sums are float32; weights are rounded to the element type before they
/// multiply the values, which adds at most a rounding of that type times sum p|v| to the error.
/// - What an excluded pair's value holds, NaN included, does not reach the output; a row in which a
/// NaN may come from there is computed again, key by key.
/// - `accepts` makes no CUDA call; `launch` is asynchronous, allocates nothing, may be captured,
/// and is deterministic. It may begin before the launch ahead of it in the stream has ended, and
/// waits for that one's results before it reads or writes anything.
///
/// Source: J. Shah et al., "FlashAttention-3", arXiv:2407.08608; PTX ISA, "Asynchronous Warpgroup
/// Level Matrix Instructions".
struct AttentionSm90WgmmaF16 {
  static constexpr char const* name = "attention/sm90_wgmma_f16";
  static Verdict accepts(AttentionArgs const& args, Device const& device) noexcept;
  static int launch(AttentionArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// The same for bfloat16. See AttentionSm90WgmmaF16.
struct AttentionSm90WgmmaBf16 {
  static constexpr char const* name = "attention/sm90_wgmma_bf16";
  static Verdict accepts(AttentionArgs const& args, Device const& device) noexcept;
  static int launch(AttentionArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
