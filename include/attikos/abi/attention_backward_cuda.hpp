// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Kernels of the compiled companion that compute the gradients of attention.
#pragma once

#include <attikos/abi/attention_backward.hpp>
#include <attikos/abi/device.hpp>
#include <attikos/abi/verdict.hpp>
#include <cstddef>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

/// What Hopper's kernels of attention's gradients take: every option of attention() but a boolean
/// mask, a bias, pages, float8 factors and attention_chunk. Those of sm_80 take the first two, too.
inline constexpr AttentionOptionSet sm90_backward_options{
    AttentionOption::lse,          AttentionOption::softcap,
    AttentionOption::causal,       AttentionOption::causal_alignment,
    AttentionOption::window_left,  AttentionOption::window_right,
    AttentionOption::lengths_q,    AttentionOption::lengths_kv,
    AttentionOption::cu_seqlens_q, AttentionOption::cu_seqlens_kv,
    AttentionOption::alibi,        AttentionOption::sinks};
inline constexpr AttentionOptionSet sm80_backward_options =
    sm90_backward_options | AttentionOptionSet{AttentionOption::bias, AttentionOption::mask};

/// What kernels of the gradients of short sequences take.
inline constexpr AttentionOptionSet short_backward_options{
    AttentionOption::lse,         AttentionOption::causal,       AttentionOption::causal_alignment,
    AttentionOption::window_left, AttentionOption::window_right, AttentionOption::lengths_q,
    AttentionOption::lengths_kv};

/// Gradients of attention by mma.sync and cp.async, sm_80 and later. All tensors are float16, lse
/// is float32.
///
/// - head_dim and head_dim_v from 1 to 256; the kernel works with the next of 64, 128 and 256.
/// - Any strides. Rows with a unit stride along head_dim, whose address and other strides are
/// multiples of 16 bytes, are read and written faster.
/// - Every option but pages, float8 factors and attention_chunk: causal masks, windows, sinks and
/// their gradient, lengths, packed sequences, grouped heads, softcap, ALiBi, a bias of 16 or 32
/// bits, boolean masks, any scale. The gradient of a bias that is not broadcast, of any
/// floating-point type.
/// - Scores, weights and sums are float32; weights and the gradients of scores are rounded to the
/// element type before they are multiplied. A pair that is not seen adds nothing, but a NaN or an
/// infinity in q, k, v or dout reaches the gradients of all that the tensor cores multiply together
/// with it.
/// - What is added to dq is added up in the workspace, in an order that depends on the call's
/// extents alone; not `ordered`, in the order in which blocks get there.
/// - `accepts` makes no CUDA call; `launch` is asynchronous, allocates nothing and may be captured.
/// On sm_90 its launches may begin before the launch ahead of them in the stream has ended, and
/// wait for that one's results before they read or write anything.
///
/// Source: T. Dao, "FlashAttention-2", arXiv:2307.08691; PTX ISA, "mma", "cp.async".
struct AttentionBackwardSm80MmaF16 {
  static constexpr char const* name = "attention_backward/sm80_mma_f16";
  static constexpr AttentionOptionSet takes = sm80_backward_options;
  static Verdict accepts(AttentionBackwardArgs const& args, Device const& device) noexcept;
  static std::size_t workspace_bytes(AttentionBackwardArgs const& args,
                                     Device const& device) noexcept;
  static int launch(AttentionBackwardArgs const& args, Device const& device,
                    CUstream_st* stream) noexcept;
};
/// The same for bfloat16. See AttentionBackwardSm80MmaF16.
struct AttentionBackwardSm80MmaBf16 {
  static constexpr char const* name = "attention_backward/sm80_mma_bf16";
  static constexpr AttentionOptionSet takes = sm80_backward_options;
  static Verdict accepts(AttentionBackwardArgs const& args, Device const& device) noexcept;
  static std::size_t workspace_bytes(AttentionBackwardArgs const& args,
                                     Device const& device) noexcept;
  static int launch(AttentionBackwardArgs const& args, Device const& device,
                    CUstream_st* stream) noexcept;
};

/// Gradients of attention of many short sequences by mma.sync and cp.async, sm_80 and later: a
/// block has all queries and keys of a batch and key head in shared memory, and one launch writes
/// dq, dk and dv. All tensors are float16, lse is float32.
///
/// - head_dim and head_dim_v from 1 to 64 and up to 192 queries and keys; or up to 128 and 64
/// queries and keys, 128 if there are no more than 132 pairs of batch and head.
/// - Any strides. Rows with a unit stride along head_dim, whose address and other strides are
/// multiples of 16 bytes, are read and written faster.
/// - Causal masks, windows, lengths, grouped heads, any scale. No packed sequences, softcap, ALiBi,
/// bias, boolean mask or sinks.
/// - Scores, weights and sums are float32; weights and the gradients of scores are rounded to the
/// element type before they are multiplied. A pair that is not seen adds nothing, but a NaN or an
/// infinity in q, k, v or dout reaches the gradients of all that the tensor cores multiply together
/// with it.
/// - The same bits every time, `ordered` or not: blocks share no sums. Where key heads are few, the
/// query heads that share one are divided, by how many the call has, and a second launch adds up
/// what parts have of dk and dv; only then is there a workspace.
/// - `accepts` makes no CUDA call; `launch` is asynchronous, allocates nothing and may be captured.
/// On sm_90 it may begin before the launch ahead of it in the stream has ended, and waits for that
/// one's results before it reads or writes anything.
///
/// Source: T. Dao, "FlashAttention-2", arXiv:2307.08691; PTX ISA, "mma", "ldmatrix", "cp.async".
struct AttentionBackwardSm80ShortF16 {
  static constexpr char const* name = "attention_backward/sm80_short_f16";
  static constexpr AttentionOptionSet takes = short_backward_options;
  static Verdict accepts(AttentionBackwardArgs const& args, Device const& device) noexcept;
  static std::size_t workspace_bytes(AttentionBackwardArgs const& args,
                                     Device const& device) noexcept;
  static int launch(AttentionBackwardArgs const& args, Device const& device,
                    CUstream_st* stream) noexcept;
};
/// The same for bfloat16. See AttentionBackwardSm80ShortF16.
struct AttentionBackwardSm80ShortBf16 {
  static constexpr char const* name = "attention_backward/sm80_short_bf16";
  static constexpr AttentionOptionSet takes = short_backward_options;
  static Verdict accepts(AttentionBackwardArgs const& args, Device const& device) noexcept;
  static std::size_t workspace_bytes(AttentionBackwardArgs const& args,
                                     Device const& device) noexcept;
  static int launch(AttentionBackwardArgs const& args, Device const& device,
                    CUstream_st* stream) noexcept;
};

/// AttentionBackwardSm80MmaF16 for float64, whose log-sum-exp is float64 too, and so are scores,
/// weights, sums and the workspace: head_dim and head_dim_v from 1 to 128; the kernel works with
/// the next of 64 and 128. bias may be float64 too. Beyond head_dim 64 a block needs 145 KB of
/// shared memory, else at most 99 KB.
struct AttentionBackwardSm80MmaF64 {
  static constexpr char const* name = "attention_backward/sm80_mma_f64";
  static constexpr AttentionOptionSet takes = sm80_backward_options;
  static Verdict accepts(AttentionBackwardArgs const& args, Device const& device) noexcept;
  static std::size_t workspace_bytes(AttentionBackwardArgs const& args,
                                     Device const& device) noexcept;
  static int launch(AttentionBackwardArgs const& args, Device const& device,
                    CUstream_st* stream) noexcept;
};
/// The same for float32 on the CUDA cores: products are fused multiply-adds. head_dim and
/// head_dim_v from 1 to 256. 2^x is the device's, to 2 units in the last place. Beyond head_dim 128
/// a block needs 133 KB of shared memory, else at most 99 KB.
struct AttentionBackwardSm80SimtF32 {
  static constexpr char const* name = "attention_backward/sm80_simt_f32";
  static constexpr AttentionOptionSet takes = sm80_backward_options;
  static Verdict accepts(AttentionBackwardArgs const& args, Device const& device) noexcept;
  static std::size_t workspace_bytes(AttentionBackwardArgs const& args,
                                     Device const& device) noexcept;
  static int launch(AttentionBackwardArgs const& args, Device const& device,
                    CUstream_st* stream) noexcept;
};
/// The same on tensor cores where `compute` is not ieee: head_dim and head_dim_v from 1 to 128.
/// Each factor, weights and gradients of scores included, is taken as two numbers of 11 significant
/// bits, and the products of the lesser ones are left out. An infinite factor, or one above
/// 2^128·(1 - 2^-12), makes a NaN of its products. Beyond head_dim 64 a block needs
/// 209 KB of shared memory, else at most 99 KB.
///
/// Source: H. Ootomo, R. Yokota, "Recovering single precision accuracy from Tensor Cores while
/// surpassing the FP32 theoretical peak performance", IJHPCA 36(4), 2022.
struct AttentionBackwardSm80MmaTf32x3 {
  static constexpr char const* name = "attention_backward/sm80_mma_tf32x3";
  static constexpr AttentionOptionSet takes = sm80_backward_options;
  static Verdict accepts(AttentionBackwardArgs const& args, Device const& device) noexcept;
  static std::size_t workspace_bytes(AttentionBackwardArgs const& args,
                                     Device const& device) noexcept;
  static int launch(AttentionBackwardArgs const& args, Device const& device,
                    CUstream_st* stream) noexcept;
};

/// Gradients of attention on Hopper's tensor cores by wgmma, fed by the copy engine (TMA); sm_90
/// alone. All tensors are float16, lse is float32.
///
/// - head_dim and head_dim_v from 1 to 256; the kernel works with the next of 32, 64, 96, 128, 192
/// and 256 for both, or with 192 and 128; with softcap or ALiBi, of 64, 128 and 256.
/// - q, k, v and dout have a unit stride along head_dim; their addresses and other strides are
/// multiples of 16 bytes (those of heads and batches may be 0). The rest may have any strides; rows
/// whose address and strides are multiples of 16 bytes are read and written faster.
/// - Causal masks, windows, softcap, ALiBi, sinks and their gradient, lengths, packed sequences,
/// grouped heads. No bias or boolean mask, no pages; the scale is positive.
/// - Scores, weights and sums are float32; weights and the gradients of scores are rounded to the
/// element type before they are multiplied. A pair that is not seen adds nothing, but a NaN or an
/// infinity in q or k reaches the gradients of all that the tensor cores multiply together with it.
/// - What is added to dq is added up in the workspace, in an order that depends on the call's
/// extents alone; not `ordered`, in the order in which blocks get there.
/// - `workspace_bytes` follows from element type, extents, options and whether sequences are
/// packed; it is 0 where these already rule the kernel out.
/// - `accepts` makes no CUDA call; `launch` is asynchronous, allocates nothing and may be captured.
/// Its launches may begin before the launch ahead of them in the stream has ended, and wait for
/// that one's results before they read or write anything.
///
/// Source: T. Dao, "FlashAttention-2", arXiv:2307.08691; J. Shah et al., "FlashAttention-3",
/// arXiv:2407.08608.
struct AttentionBackwardSm90WgmmaF16 {
  static constexpr char const* name = "attention_backward/sm90_wgmma_f16";
  static constexpr AttentionOptionSet takes = sm90_backward_options;
  static Verdict accepts(AttentionBackwardArgs const& args, Device const& device) noexcept;
  static std::size_t workspace_bytes(AttentionBackwardArgs const& args,
                                     Device const& device) noexcept;
  static int launch(AttentionBackwardArgs const& args, Device const& device,
                    CUstream_st* stream) noexcept;
};
/// The same for bfloat16. See AttentionBackwardSm90WgmmaF16.
struct AttentionBackwardSm90WgmmaBf16 {
  static constexpr char const* name = "attention_backward/sm90_wgmma_bf16";
  static constexpr AttentionOptionSet takes = sm90_backward_options;
  static Verdict accepts(AttentionBackwardArgs const& args, Device const& device) noexcept;
  static std::size_t workspace_bytes(AttentionBackwardArgs const& args,
                                     Device const& device) noexcept;
  static int launch(AttentionBackwardArgs const& args, Device const& device,
                    CUstream_st* stream) noexcept;
};

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
