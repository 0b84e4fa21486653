// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Kernels of the compiled companion for matrix products.
#pragma once

#include <attikos/abi/device.hpp>
#include <attikos/abi/gemm_args.hpp>
#include <attikos/abi/verdict.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

/// What kernels with a general epilogue take beyond the plain product.
inline constexpr GemmOptionSet epilogue_gemm_options =
    plain_gemm_options | GemmOptionSet(GemmOption::device_scale, GemmOption::pre_activation);
/// Quantized results, where C has 8 bits.
inline constexpr GemmOptionSet quantizing_gemm_options =
    epilogue_gemm_options.with(GemmOption::scale_out);
/// Factors of operands of 8 bits.
inline constexpr GemmOptionSet gemm_operand_scales{GemmOption::scale_a, GemmOption::scale_b};
/// Products elsewhere than in one strided batch, and tiles that the caller chooses.
inline constexpr GemmOptionSet sm80_gemm_options{GemmOption::a_pointers, GemmOption::b_pointers,
                                                 GemmOption::c_pointers, GemmOption::offsets,
                                                 GemmOption::counts,     GemmOption::tile};
inline constexpr GemmOptionSet gemm_groups{GemmOption::offsets, GemmOption::counts};

/// float16 × float16 → float32 on tensor cores through `nvcuda::wmma`, accumulating in float32;
/// sm_75 and newer.
///
/// - A and B are float16, each with a unit stride in one of its two dimensions (any of the four
///   transposes); C is float32 with any strides that do not overlap; bias and residual are float32
///   or float16, any strides. Pointers and strides that are multiples of 16 bytes load faster;
///   nothing needs them.
/// - Any m, n, k, batch ≥ 0. Elements outside the operands never enter a sum. k = 0 is a product
///   of zero.
/// - alpha, beta and scale are rounded to float32, in which the epilogue computes.
/// - `accepts` looks at the arguments only: it neither calls CUDA nor reads device memory.
/// - `launch` is asynchronous on the stream, allocates nothing, may be captured into a graph, and
///   returns 0 or a `cudaError_t` (`error_string` has its text). An error that was pending before
///   stays pending. The stream must belong to `Device::ordinal`, which becomes current only for
///   the time of the call.
/// - Deterministic: the same arguments on the same kind of device give the same bits.
///
/// Source: CUDA C++ Programming Guide, "Warp Matrix Functions"; `wmma` in the PTX ISA,
/// section 9.7.15.
struct GemmSm75WmmaF16 {
  static constexpr char const* name = "gemm/sm75_wmma_f16";
  static constexpr GemmOptionSet takes = plain_gemm_options;
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

/// Products on Hopper's tensor cores by wgmma, fed by the copy engine (TMA); sm_90 alone, since its
/// machine code (sm_90a) loads nowhere else. One kernel name for each group of element types:
///
/// | kernel | A, B | C |
/// |---|---|---|
/// | sm90_wgmma_f16 | float16 | float16, bfloat16, float32, 8 bits |
/// | sm90_wgmma_bf16 | bfloat16 | float16, bfloat16, float32, 8 bits |
/// | sm90_wgmma_f8 | float8_e4m3 and float8_e5m2 in any mix | float16, bfloat16, float32, 8 bits |
/// | sm90_wgmma_s8 | int8 | int32 (exact, wraps); float16, bfloat16, float32, 8 bits |
///
/// 8 bits: float8_e4m3, float8_e5m2 or int8, with beta 0 and divided by `scale_out`; saturates, NaN
/// becomes 0 in int8.
///
/// - A and B have a unit stride in one of their two dimensions; of two 8-bit ones at least one
///   along K. Their addresses, their other strides and their batch strides are multiples of 16
///   bytes (a batch stride may be 0). C, bias and residual may have any strides; 16-byte aligned
///   rows of C with nothing but alpha to apply are stored faster.
/// - m, n, batch ≥ 0, k ≥ 1. Elements outside the operands never enter a sum.
/// - 8-bit factors may be scaled by one number, or by one for each row of A and column of B;
///   `device_scale` is read.
/// - The pre-activation is float16, bfloat16 or float32 of any strides; it is stored 16 bytes at a
///   time where its rows allow that.
/// - Sums are float32 in the tensor cores; float8 sums of more than 128 products go on in float32
///   registers unless `accumulate` is fast. alpha, beta and scale are rounded to float32, in which
///   the epilogue computes.
/// - `tiles` lists what tiles the kernel has for a call, that which it would take first; the call
///   may ask for one of them. None where rows or columns are so few that it has no choice.
/// - Otherwise as GemmSm75WmmaF16: `accepts` makes no CUDA call; `launch` is asynchronous,
///   allocates nothing, may be captured, and is deterministic. It may begin before the launch ahead
///   of it in the stream has ended, and waits for that one's results before it reads or writes
///   anything.
///
/// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions" and "Tensor copies"; the
/// schedule is that of CUTLASS's warp-specialized persistent kernels as published.
struct GemmSm90WgmmaF16 {
  static constexpr char const* name = "gemm/sm90_wgmma_f16";
  static constexpr GemmOptionSet takes = quantizing_gemm_options.with(GemmOption::tile);
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static GemmTiles tiles(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// See GemmSm90WgmmaF16.
struct GemmSm90WgmmaBf16 {
  static constexpr char const* name = "gemm/sm90_wgmma_bf16";
  static constexpr GemmOptionSet takes = quantizing_gemm_options.with(GemmOption::tile);
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static GemmTiles tiles(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// See GemmSm90WgmmaF16.
struct GemmSm90WgmmaF8 {
  static constexpr char const* name = "gemm/sm90_wgmma_f8";
  static constexpr GemmOptionSet takes =
      quantizing_gemm_options.with(GemmOption::tile) | gemm_operand_scales;
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static GemmTiles tiles(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// See GemmSm90WgmmaF16.
struct GemmSm90WgmmaS8 {
  static constexpr char const* name = "gemm/sm90_wgmma_s8";
  static constexpr GemmOptionSet takes =
      quantizing_gemm_options.with(GemmOption::tile) | gemm_operand_scales;
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static GemmTiles tiles(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

/// IEEE float32 products on the CUDA cores of sm_90, fed by the copy engine: fused multiply-adds in
/// float32, in ascending order of k. Where tiles are few, up to 32 shares of K are summed so, and
/// then added in a fixed order. A, B, C are float32; batches of products without an extent above 32
/// are left to others; otherwise what GemmSm90WgmmaF16 takes.
struct GemmSm90SimtF32 {
  static constexpr char const* name = "gemm/sm90_simt_f32";
  static constexpr GemmOptionSet takes = epilogue_gemm_options;
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

/// float32 products on Hopper's tensor cores, each as three of tf32 numbers, where `compute` allows
/// it: sums of 32 k in the tensor cores, which truncate what they add, and float32 additions of
/// those. A, B, C are float32; products of so few tiles of 128 × 128 that three quarters of the
/// device would idle are left to others; otherwise what GemmSm90WgmmaF16 takes.
///
/// Error of the sum, S = Σ|a||b|, u = 2^-23: u(2k + 8)S. A product with an infinite factor is NaN,
/// as may be one with a factor above 2^128·(1 − 2^-12).
struct GemmSm90WgmmaTf32x3 {
  static constexpr char const* name = "gemm/sm90_wgmma_tf32x3";
  static constexpr GemmOptionSet takes = epilogue_gemm_options;
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

/// float64 products by mma.sync on sm_90, fed by the copy engine: IEEE float64 sums. Addresses,
/// strides and batch strides of A and B are multiples of 16 bytes; k ≥ 1; products of few tiles are
/// left to GemmSm80MmaF64; otherwise what that takes, with its bound on errors.
struct GemmSm90MmaF64 {
  static constexpr char const* name = "gemm/sm90_mma_f64";
  static constexpr GemmOptionSet takes = epilogue_gemm_options;
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

/// Products by mma.sync, fed by cp.async; sm_80 and newer (float8: sm_89 and newer).
///
/// | kernel | A, B | C |
/// |---|---|---|
/// | sm80_mma_f16 | float16 | float16, bfloat16, float32, 8 bits |
/// | sm80_mma_bf16 | bfloat16 | float16, bfloat16, float32, 8 bits |
/// | sm80_mma_s8 | int8 | int32 (exact, wraps); float16, bfloat16, float32, 8 bits |
/// | sm80_mma_f64 | float64 | float64 |
/// | sm80_mma_tf32 | float32, rounded to 11 significant bits | float32 |
/// | sm80_mma_tf32x3 | float32, as two such numbers | float32 |
/// | sm89_mma_f8 | float8_e4m3 and float8_e5m2 in any mix | float16, bfloat16, float32, 8 bits |
///
/// - C of 8 bits as in GemmSm90WgmmaF16.
/// - Sums are float32 in the matrix unit, IEEE float64 or int32. tf32x3 leaves 32 k at a time to
///   the unit and adds such parts in float32; float8 the same with 128 k, or all of K where
///   `accumulate` is fast.
/// - A and B have a unit stride in one of their two dimensions; any other strides, also odd, 0 or
///   negative. Copies are of 16 bytes where address and strides are multiples of that, else of 8 or
///   4, and of single elements where nothing larger is aligned. C, bias and residual may have any
///   strides; 16-byte aligned rows of C with nothing but alpha to apply are stored faster.
/// - m, n, k, batch ≥ 0. Elements outside the operands never enter a sum.
/// - Arrays of pointers in any mix with strides; the matrices may begin at any element. Groups of
///   rows (`offsets`) and counted rows (`counts`), also of matrices behind pointers. All these
///   lists are read on the device, so that a captured call follows what they become; matrices
///   without rows need no pointer. Rows of no group are not written, and what they hold in A does
///   not matter. Where A's unit stride is along M, groups load faster that begin at multiples of 16
///   bytes.
/// - 8-bit factors may be scaled by one number for each matrix or group, or by one for each row of
///   A and column of B; `device_scale` is read. alpha, beta and scale are rounded to float32, in
///   which the epilogue computes, but for float64.
/// - int8 factors may have zero points, one or one for each row of A and column of B, modulo 2^32.
/// - `tiles` as in GemmSm90WgmmaF16.
/// - The pre-activation is float16, bfloat16 or float32, beside float64 also that, of any strides.
/// - tf32 is taken where `compute` is tf32, tf32x3 where it is tf32x3; batches of products without
///   an extent above 32 that GemmSm80SmallF32 takes are left to it. A tf32x3 product with an
///   infinite factor is NaN, as is one with a factor above 2^128·(1 − 2^-12).
/// - Otherwise as GemmSm75WmmaF16: `accepts` makes no CUDA call; `launch` is asynchronous,
///   allocates nothing, may be captured, and is deterministic.
///
/// Error of the sum, S = Σ|a||b|, u = 2^-23: u(k + 8)S; tf32: 1.001·2^-10·S more; tf32x3:
/// u(2k + 8)S; float64: u(k + 8)S with u = 2^-52; int8: none; float8: as the matrix unit adds, see
/// Accumulate.
///
/// Source: PTX ISA, "Matrix multiply-accumulate operation using mma instruction"; H. Ootomo,
/// R. Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32
/// theoretical peak performance", IJHPCA 36(4), 2022.
struct GemmSm80MmaF16 {
  static constexpr char const* name = "gemm/sm80_mma_f16";
  static constexpr GemmOptionSet takes = quantizing_gemm_options | sm80_gemm_options;
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static GemmTiles tiles(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// See GemmSm80MmaF16.
struct GemmSm80MmaBf16 {
  static constexpr char const* name = "gemm/sm80_mma_bf16";
  static constexpr GemmOptionSet takes = quantizing_gemm_options | sm80_gemm_options;
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static GemmTiles tiles(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// See GemmSm80MmaF16.
struct GemmSm80MmaS8 {
  static constexpr char const* name = "gemm/sm80_mma_s8";
  static constexpr GemmOptionSet takes =
      quantizing_gemm_options | sm80_gemm_options | gemm_operand_scales |
      GemmOptionSet(GemmOption::zero_point_a, GemmOption::zero_point_b);
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static GemmTiles tiles(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// See GemmSm80MmaF16.
struct GemmSm80MmaF64 {
  static constexpr char const* name = "gemm/sm80_mma_f64";
  static constexpr GemmOptionSet takes = epilogue_gemm_options | sm80_gemm_options;
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static GemmTiles tiles(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// See GemmSm80MmaF16.
struct GemmSm80MmaTf32 {
  static constexpr char const* name = "gemm/sm80_mma_tf32";
  static constexpr GemmOptionSet takes = epilogue_gemm_options | sm80_gemm_options;
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static GemmTiles tiles(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// See GemmSm80MmaF16.
struct GemmSm80MmaTf32x3 {
  static constexpr char const* name = "gemm/sm80_mma_tf32x3";
  static constexpr GemmOptionSet takes = epilogue_gemm_options | sm80_gemm_options;
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static GemmTiles tiles(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// See GemmSm80MmaF16.
struct GemmSm89MmaF8 {
  static constexpr char const* name = "gemm/sm89_mma_f8";
  static constexpr GemmOptionSet takes =
      quantizing_gemm_options | sm80_gemm_options | gemm_operand_scales;
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static GemmTiles tiles(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

/// IEEE float32 products on CUDA cores, fed by cp.async; sm_80 and newer: fused multiply-adds in
/// float32, in ascending order of k. A, B, C are float32; otherwise what GemmSm80MmaF16 takes, with
/// its bound on errors. All copies are of single elements, so that alignment makes no difference; A
/// and B need a unit stride in one dimension, as there. Infinities and NaN go through as IEEE 754
/// says.
struct GemmSm80SimtF32 {
  static constexpr char const* name = "gemm/sm80_simt_f32";
  static constexpr GemmOptionSet takes = epilogue_gemm_options | sm80_gemm_options;
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static GemmTiles tiles(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

/// Groups of rows (`offsets`) and counted rows (`counts`) by wgmma and TMA; sm_90 alone, since its
/// machine code (sm_90a) loads nowhere else. A and B are float16, C is float16, bfloat16, float32
/// or of 8 bits as in GemmSm90WgmmaF16.
///
/// - The blocks read offsets and counts on the device, where they are clamped; the host never does,
///   so that a captured call follows what they become. Rows of no group are not written, and what
///   they hold in A does not matter.
/// - A has its unit stride along K, B along K or N; their addresses and other strides are multiples
///   of 16 bytes (B's batch stride may be 0). C, bias and residual may have any strides; 16-byte
///   aligned rows of a 16-bit C with nothing but alpha to apply are stored faster. k ≥ 1.
/// - Sums are float32 in the tensor cores; alpha, beta and scale are rounded to float32, in which
///   the epilogue computes; `device_scale` is read; the pre-activation as in GemmSm90WgmmaF16.
/// - Otherwise as GemmSm90WgmmaF16.
///
/// Source: grouped products with offsets and masks on the device as in DeepGEMM's published
/// interface; PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
struct GemmSm90GroupedF16 {
  static constexpr char const* name = "gemm/sm90_grouped_f16";
  static constexpr GemmOptionSet takes = quantizing_gemm_options | gemm_groups;
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// The same for bfloat16. See GemmSm90GroupedF16.
struct GemmSm90GroupedBf16 {
  static constexpr char const* name = "gemm/sm90_grouped_bf16";
  static constexpr GemmOptionSet takes = quantizing_gemm_options | gemm_groups;
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// The same for float8_e4m3 and float8_e5m2 in any mix, with B's unit stride along K. Scales of A
/// are one, one for each row, or change along K too; of B one for each group, one for each column,
/// or one for every 128 × 128. The tensor cores sum 128 products, float32 additions the rest; all
/// of K where `accumulate` is fast, both operands are float8_e4m3 and no scale changes along K. See
/// GemmSm90GroupedF16.
struct GemmSm90GroupedF8 {
  static constexpr char const* name = "gemm/sm90_grouped_f8";
  static constexpr GemmOptionSet takes =
      quantizing_gemm_options | gemm_groups | gemm_operand_scales;
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// The same for int8, with B's unit stride along K. C is int32 (exact, wraps; alpha 1, beta 0 or 1
/// and no epilogue) or what the others write. Scales of A are one or one for each row, of B one for
/// each group or one for each column. See GemmSm90GroupedF16.
struct GemmSm90GroupedS8 {
  static constexpr char const* name = "gemm/sm90_grouped_s8";
  static constexpr GemmOptionSet takes =
      quantizing_gemm_options | gemm_groups | gemm_operand_scales;
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

/// Batches of products of up to 64 × 64 × 64, several at a time in each warp, fed by cp.async;
/// sm_80 and newer. A, B, C are float32: fused multiply-adds in ascending order of k.
///
/// - Matrices in strided batches or behind arrays of pointers, in any mix. Any strides; copies are
///   of 16 bytes where a matrix has a unit stride along K (A) or N (B) and its lines begin at
///   multiples of 16 bytes, stores where C's lines do. m, n, k, batch ≥ 0.
/// - alpha, beta and scale, which is multiplied into both; no other epilogue.
/// - Strided batches are taken from two products on, those with an extent above 32 from twice as
///   many as the device has multiprocessors: other kernels share out few large ones better. Arrays
///   of pointers are taken always.
/// - Otherwise as GemmSm75WmmaF16: `accepts` makes no CUDA call; `launch` is asynchronous,
///   allocates nothing, may be captured, and is deterministic.
struct GemmSm80SmallF32 {
  static constexpr char const* name = "gemm/sm80_small_f32";
  static constexpr GemmOptionSet takes{GemmOption::alpha,      GemmOption::beta,
                                       GemmOption::scale,      GemmOption::a_pointers,
                                       GemmOption::b_pointers, GemmOption::c_pointers};
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// The same for float64, summed by mma.sync, eight k at a time in the order 0 2 4 6, 1 3 5 7.
struct GemmSm80SmallF64 {
  static constexpr char const* name = "gemm/sm80_small_f64";
  static constexpr GemmOptionSet takes{GemmOption::alpha,      GemmOption::beta,
                                       GemmOption::scale,      GemmOption::a_pointers,
                                       GemmOption::b_pointers, GemmOption::c_pointers};
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
