// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Decode kernels of the compiled companion.
#pragma once

#include <attikos/abi/decode.hpp>
#include <attikos/abi/device.hpp>
#include <attikos/abi/verdict.hpp>
#include <cstddef>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

/// What decode kernels take: all but factors of float8 tensors.
inline constexpr AttentionOptionSet decode_options{
    AttentionOption::lse,          AttentionOption::softcap,
    AttentionOption::causal,       AttentionOption::causal_alignment,
    AttentionOption::window_left,  AttentionOption::window_right,
    AttentionOption::lengths_q,    AttentionOption::lengths_kv,
    AttentionOption::cu_seqlens_q, AttentionOption::cu_seqlens_kv,
    AttentionOption::page_table,   AttentionOption::bias,
    AttentionOption::mask,         AttentionOption::alibi,
    AttentionOption::sinks};

/// The same of float8, factors included.
inline constexpr AttentionOptionSet float8_decode_options =
    decode_options.with(AttentionOption::descale_q)
        .with(AttentionOption::descale_k)
        .with(AttentionOption::descale_v);

/// Attention of few queries over a long cache by mma.sync and cp.async, from sm_80 on: the cache is
/// split among blocks, whose partial results a second launch joins. q, k, v and out are float16.
///
/// - head_dim and head_dim_v are multiples of 8 up to 256, apart if need be; the kernel works with
/// the next of 64, 128 and 256. Rows that share a key head, its query heads times the queries, come
/// 16 or, where there are more, 64 to a tile, for which keys and values are read once.
/// - q, k and v have a unit stride along head_dim; their addresses and other strides are multiples
/// of 16 bytes. out and lse may have any strides.
/// - Pages of any size, packed queries and keys, lengths, causal masks, windows, softcap, bias and
/// mask (any strides), ALiBi, sinks, grouped heads. No float8 factors.
/// - Scores, weights and sums are float32; weights are rounded to the element type before they
/// multiply the values, which adds at most a rounding of that type times sum p|v| to the error.
/// - What an excluded pair's value holds, NaN included, does not reach the output: a row in which a
/// NaN may come from there is computed again, key by key.
/// - The keys that a sequence's rows see are cut into parts of equal length. With `splits` given
/// the bits of a sequence's result depend on its own queries, keys and lengths and on seqlen_q
/// alone (where queries are packed, on whether their mean number asks for tiles of 16 rows or 64),
/// not on what else is in the batch or how large the cache is.
/// - `workspace_bytes` depends on extents, `splits` and the device alone. `accepts` makes no CUDA
/// call; `launch` is asynchronous, allocates nothing, reads lengths and tables on the device only,
/// may be captured, and is deterministic. On sm_90 it may begin before the launch ahead of it in
/// the stream has ended, and waits for that one's results before it uses or writes anything; until
/// then it brings keys and values to L2 that lengths and table, as they are, let it guess.
///
/// Source: T. Dao et al., "Flash-Decoding for long-context inference", 2023; PTX ISA, "mma",
/// "ldmatrix", "cp.async".
struct DecodeSm80MmaF16 {
  static constexpr char const* name = "decode/sm80_mma_f16";
  static constexpr AttentionOptionSet takes = decode_options;
  static Verdict accepts(DecodeArgs const& args, Device const& device) noexcept;
  static std::size_t workspace_bytes(DecodeArgs const& args, Device const& device) noexcept;
  static int launch(DecodeArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// The same for bfloat16. See DecodeSm80MmaF16.
struct DecodeSm80MmaBf16 {
  static constexpr char const* name = "decode/sm80_mma_bf16";
  static constexpr AttentionOptionSet takes = decode_options;
  static Verdict accepts(DecodeArgs const& args, Device const& device) noexcept;
  static std::size_t workspace_bytes(DecodeArgs const& args, Device const& device) noexcept;
  static int launch(DecodeArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

/// The same over float8_e4m3 with its factors, out float16, bfloat16 or float32: products and
/// weights are float16, of which every number of float8_e4m3 is one, so that it is weights alone
/// that are rounded, to float16. The strides of multiples of 16 bytes are those of 16 elements. See
/// DecodeSm80MmaF16.
struct DecodeSm80MmaE4m3 {
  static constexpr char const* name = "decode/sm80_mma_e4m3";
  static constexpr AttentionOptionSet takes = float8_decode_options;
  static Verdict accepts(DecodeArgs const& args, Device const& device) noexcept;
  static std::size_t workspace_bytes(DecodeArgs const& args, Device const& device) noexcept;
  static int launch(DecodeArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

/// Attention of few queries over a long cache on CUDA cores, from sm_80 on: what
/// DecodeSm80MmaF16 refuses for its layout or head_dim, and float32 and float64, for which there
/// is no other kernel. q, k, v and out are float32.
///
/// - head_dim and head_dim_v from 1 to 512, apart if need be; the kernel works with the next of 64,
/// 128, 256 and 512. Rows that share a key head, its query heads times the queries, come 4 or,
/// where there are more and head dims are up to 128, 8 to a tile (float64: 4, and 2 above 256), for
/// which keys and values are read once; tiles of the same keys run side by side.
/// - Any addresses and strides, also along head_dim. k and v are read 16 bytes at a time (16-bit
/// types 8; up to head_dim 64 float32 8 and 16-bit types 4) where their addresses, strides and head
/// dims are multiples of that and features are contiguous, else element by element.
/// - Pages of any size, packed queries and keys, lengths (of q one for all heads of a sequence),
/// causal masks, windows, softcap, bias (of a float type) and mask with any strides, ALiBi, sinks,
/// grouped heads. No float8 factors.
/// - Products, scores, weights and sums are IEEE float32, whatever `compute` allows, but for the
/// exponential and the tanh, which are off by a few units in the last place. Weights are not
/// rounded to the element type. lse is float32.
/// - What an excluded pair's value holds, NaN included, is not multiplied by anything.
/// - The keys that a sequence's rows see are cut into parts of equal length. With `splits` given
/// the bits of a sequence's result depend on its own queries, keys and lengths, on seqlen_q (where
/// queries are packed, on their mean number) and on the layout alone, not on what else is in the
/// batch or how large the cache is.
/// - `workspace_bytes` depends on extents, `splits` and the device alone. `accepts` makes no CUDA
/// call; `launch` is asynchronous, allocates nothing, reads lengths and tables on the device only,
/// may be captured, and is deterministic. On sm_90 it may begin before the launch ahead of it in
/// the stream has ended, and waits for that one's results before it reads or writes anything.
///
/// Source: T. Dao et al., "Flash-Decoding for long-context inference", 2023.
struct DecodeSm80SimtF32 {
  static constexpr char const* name = "decode/sm80_simt_f32";
  static constexpr AttentionOptionSet takes = decode_options;
  static Verdict accepts(DecodeArgs const& args, Device const& device) noexcept;
  static std::size_t workspace_bytes(DecodeArgs const& args, Device const& device) noexcept;
  static int launch(DecodeArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// The same for float64, in float64 throughout, lse too. See DecodeSm80SimtF32.
struct DecodeSm80SimtF64 {
  static constexpr char const* name = "decode/sm80_simt_f64";
  static constexpr AttentionOptionSet takes = decode_options;
  static Verdict accepts(DecodeArgs const& args, Device const& device) noexcept;
  static std::size_t workspace_bytes(DecodeArgs const& args, Device const& device) noexcept;
  static int launch(DecodeArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// The same for float16, in float32 behind the elements. See DecodeSm80SimtF32.
struct DecodeSm80SimtF16 {
  static constexpr char const* name = "decode/sm80_simt_f16";
  static constexpr AttentionOptionSet takes = decode_options;
  static Verdict accepts(DecodeArgs const& args, Device const& device) noexcept;
  static std::size_t workspace_bytes(DecodeArgs const& args, Device const& device) noexcept;
  static int launch(DecodeArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// The same for bfloat16, in float32 behind the elements. See DecodeSm80SimtF32.
struct DecodeSm80SimtBf16 {
  static constexpr char const* name = "decode/sm80_simt_bf16";
  static constexpr AttentionOptionSet takes = decode_options;
  static Verdict accepts(DecodeArgs const& args, Device const& device) noexcept;
  static std::size_t workspace_bytes(DecodeArgs const& args, Device const& device) noexcept;
  static int launch(DecodeArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
