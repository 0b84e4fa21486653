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

/// Factors of float8 tensors.
inline constexpr AttentionOptionSet float8_attention_options{
    AttentionOption::descale_q, AttentionOption::descale_k, AttentionOption::descale_v};

/// What kernels that work on tiles of queries by blocks of keys take: all but factors.
inline constexpr AttentionOptionSet tile_attention_options{
    AttentionOption::lse,          AttentionOption::softcap,
    AttentionOption::causal,       AttentionOption::causal_alignment,
    AttentionOption::window_left,  AttentionOption::window_right,
    AttentionOption::lengths_q,    AttentionOption::lengths_kv,
    AttentionOption::cu_seqlens_q, AttentionOption::cu_seqlens_kv,
    AttentionOption::page_table,   AttentionOption::bias,
    AttentionOption::mask,         AttentionOption::alibi,
    AttentionOption::sinks};

/// What Hopper's take of it.
inline constexpr AttentionOptionSet sm90_attention_options =
    tile_attention_options.without(AttentionOption::mask);

/// What kernels for short sequences take.
inline constexpr AttentionOptionSet short_attention_options{
    AttentionOption::lse,         AttentionOption::causal,       AttentionOption::causal_alignment,
    AttentionOption::window_left, AttentionOption::window_right, AttentionOption::lengths_q,
    AttentionOption::lengths_kv,  AttentionOption::cu_seqlens_q, AttentionOption::cu_seqlens_kv,
    AttentionOption::sinks};

/// Attention of many short sequences by mma.sync and cp.async, all keys of a sequence in shared
/// memory at once; sm_80 and later. q, k, v and out are float16.
///
/// - Up to 128 queries and keys; of packed sequences on average, single ones may be longer.
/// head_dim and head_dim_v are multiples of 8 up to 128; the kernel works with the next of 32, 64
/// and 128.
/// - q, k and v have a unit stride along head_dim; their addresses and other strides are multiples
/// of 16 bytes. out and lse may have any strides; rows of out whose address and strides are
/// multiples of 16 bytes are stored faster.
/// - Causal masks, windows, sinks, lengths, packed sequences, grouped heads; a positive scale. No
/// softcap, ALiBi, bias or boolean mask, no pages, no float8 factors.
/// - Scores, weights and sums are float32; weights are rounded to the element type before they
/// multiply the values. What an excluded pair's value holds, NaN included, does not reach the
/// output.
/// - `accepts` makes no CUDA call; `launch` is asynchronous, allocates nothing, may be captured,
/// and is deterministic. On sm_90 it may begin before the launch ahead of it in the stream has
/// ended, and waits for that one's results before it reads or writes anything.
///
/// Source: T. Dao, "FlashAttention-2", arXiv:2307.08691; PTX ISA, "mma", "cp.async".
struct AttentionSm80ShortF16 {
  static constexpr char const* name = "attention/sm80_short_f16";
  static constexpr AttentionOptionSet takes = short_attention_options;
  static Verdict accepts(AttentionArgs const& args, Device const& device) noexcept;
  static int launch(AttentionArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// The same for bfloat16. See AttentionSm80ShortF16.
struct AttentionSm80ShortBf16 {
  static constexpr char const* name = "attention/sm80_short_bf16";
  static constexpr AttentionOptionSet takes = short_attention_options;
  static Verdict accepts(AttentionArgs const& args, Device const& device) noexcept;
  static int launch(AttentionArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

/// The same on Hopper by wgmma and the copy engine (TMA); sm_90 alone. From 33 queries or 65 keys
/// up to 256, to 512 in full attention of many heads with head dimensions above 32, to 128 where
/// one is above 64. See AttentionSm80ShortF16 for the rest; strides of q, k and v are not negative
/// here, and those of positions not 0.
struct AttentionSm90ShortF16 {
  static constexpr char const* name = "attention/sm90_short_f16";
  static constexpr AttentionOptionSet takes = short_attention_options;
  static Verdict accepts(AttentionArgs const& args, Device const& device) noexcept;
  static int launch(AttentionArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// The same for bfloat16. See AttentionSm90ShortF16.
struct AttentionSm90ShortBf16 {
  static constexpr char const* name = "attention/sm90_short_bf16";
  static constexpr AttentionOptionSet takes = short_attention_options;
  static Verdict accepts(AttentionArgs const& args, Device const& device) noexcept;
  static int launch(AttentionArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

/// Flash attention on Hopper's tensor cores by wgmma, fed by the copy engine (TMA); sm_90 alone,
/// since its machine code (sm_90a) loads nowhere else. q, k, v and out are float16.
///
/// - head_dim from 1 to 256, head_dim_v apart from it from 1 to 512; the kernel works with the next
/// of 32, 64, 96, 128, 192 and 256, or of 64, 128 and 256 with softcap, bias, ALiBi or a scale that
/// is not positive; 192 and 128, 64 and 256 without padding.
/// - q, k and v have a unit stride along head_dim; their addresses and other strides are multiples
/// of 16 bytes (those of heads and batches may be 0). out and lse may have any strides; rows of out
/// whose address and strides are multiples of 16 bytes are stored faster.
/// - Causal masks, windows, softcap, ALiBi, bias (float32, float16, bfloat16; any strides), sinks,
/// lengths, packed sequences, grouped heads, of which two or four share a tile where their queries
/// are few, pages. Pages that are no multiple of 8 positions want head_dims that are, and neither
/// ALiBi nor a bias that the copy engine or tensor cores add. No boolean mask, no float8 factors.
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
  static constexpr AttentionOptionSet takes = sm90_attention_options;
  static Verdict accepts(AttentionArgs const& args, Device const& device) noexcept;
  static int launch(AttentionArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// The same for bfloat16. See AttentionSm90WgmmaF16.
struct AttentionSm90WgmmaBf16 {
  static constexpr char const* name = "attention/sm90_wgmma_bf16";
  static constexpr AttentionOptionSet takes = sm90_attention_options;
  static Verdict accepts(AttentionArgs const& args, Device const& device) noexcept;
  static int launch(AttentionArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

/// The same for q, k and v of float8_e4m3, with their factors, pages of a multiple of 8 positions
/// included; out is float16 or bfloat16. See AttentionSm90WgmmaF16.
///
/// - head_dim_v from 1 to 256; the kernel works with the next head_dim of 32, 64, 96, 128, 192 and
/// 256, or as above of 64, 128 and 256; 192 and 128, 64 and 256 without padding.
/// - Weights are rounded to float8_e4m3 before they multiply the values, scaled so that the largest
/// of a row lies from 2^7 to 448: that adds at most 2^-4 sum p|v| and 2^-17 n max|v| / sum of
/// weights to the error. The sums of weights, and the log-sum-exp, are of weights before that.
/// - Products are summed as the tensor cores do it: every 32 terms what lies below 2^-13 of the
/// largest term, or of the sum so far, is dropped.
struct AttentionSm90WgmmaE4m3 {
  static constexpr char const* name = "attention/sm90_wgmma_e4m3";
  static constexpr AttentionOptionSet takes = sm90_attention_options | float8_attention_options;
  static Verdict accepts(AttentionArgs const& args, Device const& device) noexcept;
  static int launch(AttentionArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

/// Flash attention on tensor cores by mma.sync, fed by cp.async; sm_80 and later. q, k, v and out
/// are float16.
///
/// - head_dim from 1 to 256, head_dim_v apart from it from 1 to 512; the kernel works with the next
/// of 64, 128 and 256, and goes through the keys once more for features of v beyond 256.
/// - Any strides. q, k or v whose address and strides are multiples of 16 bytes (a unit stride
/// along head_dim) are copied 16 bytes at a time, others element by element, which is slower.
/// - Keys and values straight, packed or in pages of any size.
/// - Causal masks, windows, softcap, ALiBi, bias (float32, float16, bfloat16; any strides), boolean
/// masks, sinks, lengths, packed sequences, grouped heads. No float8 factors.
/// - Scores, weights and sums are float32; weights are rounded to the element type before they
/// multiply the values, which adds at most a rounding of that type times sum p|v| to the error.
/// - What an excluded pair's value holds, NaN included, does not reach the output: blocks of keys
/// that have such pairs and values that are no numbers are multiplied pair by pair.
/// - A block needs at most 99 KB of shared memory, which every card from sm_80 on has.
/// - `accepts` makes no CUDA call; `launch` is asynchronous, allocates nothing, may be captured,
/// and is deterministic.
///
/// Source: T. Dao, "FlashAttention-2", arXiv:2307.08691; PTX ISA, "mma", "ldmatrix", "cp.async".
struct AttentionSm80MmaF16 {
  static constexpr char const* name = "attention/sm80_mma_f16";
  static constexpr AttentionOptionSet takes = tile_attention_options;
  static Verdict accepts(AttentionArgs const& args, Device const& device) noexcept;
  static int launch(AttentionArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// The same for bfloat16. See AttentionSm80MmaF16.
struct AttentionSm80MmaBf16 {
  static constexpr char const* name = "attention/sm80_mma_bf16";
  static constexpr AttentionOptionSet takes = tile_attention_options;
  static Verdict accepts(AttentionArgs const& args, Device const& device) noexcept;
  static int launch(AttentionArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

/// The same for q, k and v of float8_e4m3, with their factors; out is float16 or bfloat16. See
/// AttentionSm80MmaF16, whose products these are: all numbers of float8_e4m3 are numbers of
/// float16, to which weights are rounded.
struct AttentionSm80MmaE4m3 {
  static constexpr char const* name = "attention/sm80_mma_e4m3";
  static constexpr AttentionOptionSet takes = tile_attention_options | float8_attention_options;
  static Verdict accepts(AttentionArgs const& args, Device const& device) noexcept;
  static int launch(AttentionArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

/// Flash attention through nvcuda::wmma, sm_75 and later: what float16 calls on older cards than
/// sm_80 take. q, k, v and out are float16.
///
/// - head_dim, head_dim_v, strides, options, rounding and excluded pairs as AttentionSm80MmaF16.
/// - Keys and values come to shared memory through registers, 16 bytes at a time where their
/// address and strides are multiples of that.
/// - A block needs at most 64 KB of shared memory, which sm_75 has.
/// - `accepts` makes no CUDA call; `launch` is asynchronous, allocates nothing, may be captured,
/// and is deterministic.
///
/// Source: CUDA C++ Programming Guide, "Warp Matrix Functions"; T. Dao, "FlashAttention-2",
/// arXiv:2307.08691.
struct AttentionSm75WmmaF16 {
  static constexpr char const* name = "attention/sm75_wmma_f16";
  static constexpr AttentionOptionSet takes = tile_attention_options;
  static Verdict accepts(AttentionArgs const& args, Device const& device) noexcept;
  static int launch(AttentionArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

/// Flash attention in IEEE float32 on CUDA cores, fed by cp.async; sm_80 and later. q, k, v and out
/// are float32.
///
/// - head_dim and head_dim_v from 1 to 256, apart if need be; the kernel works with the next of 64,
/// 128 and 256.
/// - Any strides. Rows with a unit stride along head_dim whose address and strides are multiples of
/// 16 bytes are read and written faster.
/// - Keys and values straight, packed or in pages of any size.
/// - Causal masks, windows, softcap, ALiBi, bias (float32, float16, bfloat16; any strides), boolean
/// masks, sinks, lengths, packed sequences, grouped heads.
/// - Products are fused multiply-adds in float32, in ascending order of features and of keys within
/// a block; blocks of keys join in ascending order. 2^x is the device's, to 2 units in the last
/// place.
/// - What an excluded pair's key or value holds, NaN included, does not reach the output.
/// - A block needs at most 99 KB of shared memory, which every card from sm_80 on has.
/// - `accepts` makes no CUDA call; `launch` is asynchronous, allocates nothing, may be captured,
/// and is deterministic.
///
/// Source: T. Dao, "FlashAttention-2", arXiv:2307.08691.
struct AttentionSm80SimtF32 {
  static constexpr char const* name = "attention/sm80_simt_f32";
  static constexpr AttentionOptionSet takes = tile_attention_options;
  static Verdict accepts(AttentionArgs const& args, Device const& device) noexcept;
  static int launch(AttentionArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// The same on tensor cores by mma.sync, where `compute` is not ieee: each factor, weights
/// included, is taken as two numbers of 11 significant bits, and the products of the lesser ones
/// are left out. Errors are at most twice those of AttentionSm80SimtF32. An infinite factor, or one
/// above 2^128·(1 - 2^-12), makes a NaN of its products. A row in which a NaN may come from an
/// excluded value is computed again in IEEE float32, key by key.
///
/// Source: H. Ootomo, R. Yokota, "Recovering single precision accuracy from Tensor Cores while
/// surpassing the FP32 theoretical peak performance", IJHPCA 36(4), 2022.
struct AttentionSm80MmaTf32x3 {
  static constexpr char const* name = "attention/sm80_mma_tf32x3";
  static constexpr AttentionOptionSet takes = tile_attention_options;
  static Verdict accepts(AttentionArgs const& args, Device const& device) noexcept;
  static int launch(AttentionArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

/// The same for float64, whose log-sum-exp is float64 too: head_dim from 1 to 128, head_dim_v from
/// 1 to 512, with features of v beyond 128 in launches of their own. Scores, weights and sums are
/// float64. bias may be float64 too. Beyond head_dim 64 a block needs 113 KB of shared memory.
struct AttentionSm80MmaF64 {
  static constexpr char const* name = "attention/sm80_mma_f64";
  static constexpr AttentionOptionSet takes = tile_attention_options;
  static Verdict accepts(AttentionArgs const& args, Device const& device) noexcept;
  static int launch(AttentionArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
