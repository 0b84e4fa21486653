// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What crosses the wall for a matrix product: one plain struct, and the CUDA kernels that take it.
#pragma once

#include <attikos/abi/compute.hpp>
#include <attikos/abi/device.hpp>
#include <attikos/abi/dtype.hpp>
#include <attikos/abi/scale_grid.hpp>
#include <attikos/abi/verdict.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Pointwise function applied by an epilogue; `gelu` is the erf form.
enum class Activation : std::uint8_t { none, relu, gelu, gelu_tanh, silu };

/// The dimension of C that a bias vector runs along: `n` is one value per column, `m` one per row.
enum class BiasAlong : std::uint8_t { n, m };

/// How float8 products are summed: `promoted` adds at most 128 of them in the matrix unit before
/// they go to float32 registers, `fast` leaves the whole sum to the unit, which may keep as few as
/// 14 bits.
enum class Accumulate : std::uint8_t { promoted, fast };

namespace abi {

using ::attikos::ATTIKOS_VERSION_NAMESPACE::Accumulate;
using ::attikos::ATTIKOS_VERSION_NAMESPACE::Activation;
using ::attikos::ATTIKOS_VERSION_NAMESPACE::BiasAlong;
using ::attikos::ATTIKOS_VERSION_NAMESPACE::DType;

/// Rows, columns and depth of a kernel's tile; rows of all blocks of a cluster together. In what a
/// caller asks for, 0 leaves an extent to the kernel.
struct GemmTile {
  int m = 0, n = 0, k = 0;
  friend constexpr bool operator==(GemmTile const& a, GemmTile const& b) noexcept {
    return a.m == b.m && a.n == b.n && a.k == b.k;
  }
  friend constexpr bool operator!=(GemmTile const& a, GemmTile const& b) noexcept {
    return !(a == b);
  }
};

/// Tiles that a kernel may choose from for a call, best first by its own rule, each once.
struct GemmTiles {
  static constexpr int most = 16;
  GemmTile tile[most];
  int count = 0;

  constexpr void add(GemmTile const& one) noexcept {
    for (int i = 0; i < count; ++i)
      if (tile[i] == one) return;
    if (count < most) tile[count++] = one;
  }
};

/// One batched product, D = act(scale·(alpha·A·B + beta·C) + bias) + residual, written into C.
///
/// A is [batch, m, k], B is [batch, k, n], C is [batch, m, n]. Transposition is folded into the
/// strides. Strides count elements, are 64-bit, and may be 0 or negative in inputs (0 in a batch
/// stride broadcasts). A dimension of extent 1 may carry any stride. `bias` and `residual` may be
/// null, which means none. beta = 0 means that C is never read. Storage of A, B, bias must not
/// overlap C; residual may be C itself. That of `pre_activation` overlaps nothing.
///
/// A and B stand for what they hold times their scales, less their zero points. What follows
/// `residual_n` goes beyond the plain product: a kernel that does not do all of it refuses calls
/// for which beyond_plain_gemm() names something.
struct GemmArgs {
  void const* a = nullptr;
  void const* b = nullptr;
  void* c = nullptr;
  DType type_a = DType::float32;
  DType type_b = DType::float32;
  DType type_c = DType::float32;
  std::int64_t m = 0, n = 0, k = 0, batch = 0;
  std::int64_t a_batch = 0, a_m = 0, a_k = 0;
  std::int64_t b_batch = 0, b_k = 0, b_n = 0;
  std::int64_t c_batch = 0, c_m = 0, c_n = 0;
  double alpha = 1, beta = 0, scale = 1;
  Activation activation = Activation::none;
  void const* bias = nullptr;
  DType type_bias = DType::float32;
  BiasAlong bias_along = BiasAlong::n;
  std::int64_t bias_stride = 0;
  void const* residual = nullptr;
  DType type_residual = DType::float32;
  std::int64_t residual_batch = 0, residual_m = 0, residual_n = 0;

  /// What the caller allows; a kernel may be more precise than that.
  Compute compute = Compute::ieee;
  Accumulate accumulate = Accumulate::promoted;
  /// Factors of A over [batch, m, k] and of B over [batch, k, n].
  ScaleGrid scale_a, scale_b;
  /// Subtracted from int8 elements: one for all (stride 0), or one per row of A, per column of B.
  std::int32_t const* zero_point_a = nullptr;
  std::int32_t const* zero_point_b = nullptr;
  std::int64_t zero_point_a_stride = 0, zero_point_b_stride = 0;
  /// One number on the device that `scale` is multiplied by; null: 1.
  float const* device_scale = nullptr;
  /// One number on the device that D is divided by before it is rounded to C's type; null: 1.
  float const* scale_out = nullptr;
  /// Output of the argument of act; null: not wanted.
  void* pre_activation = nullptr;
  DType type_pre_activation = DType::float32;
  std::int64_t pre_activation_batch = 0, pre_activation_m = 0, pre_activation_n = 0;
  /// A function of the caller's stands in for `activation`; only code compiled with it can run.
  bool custom_epilogue = false;
  /// Device arrays of pointers to elements, one for each batch, in place of a, b, c. The batch
  /// stride then counts pointers.
  void const* const* a_pointers = nullptr;
  void const* const* b_pointers = nullptr;
  void* const* c_pointers = nullptr;
  /// Group g is rows [offsets[g], offsets[g + 1]) of A and C, which have batch 1, times B's matrix
  /// g: int32 or int64 on the device, clamped to [0, m].
  void const* offsets = nullptr;
  DType type_offsets = DType::int32;
  std::int64_t offsets_stride = 0, groups = 0;
  /// Rows that count in each batch, int32 on the device, clamped to [0, m]; null: all.
  std::int32_t const* counts = nullptr;
  std::int64_t counts_stride = 0;
  /// The product is summed over this many pairs of matrices, the strides from one to the next.
  std::int64_t outer = 1, a_outer = 0, b_outer = 0;
  /// Tile that the caller chose.
  GemmTile tile;
};

/// The first thing that a call asks for beyond the plain product and its epilogue, as a reason to
/// refuse it; null if there is none.
constexpr char const* beyond_plain_gemm(GemmArgs const& g) noexcept {
  // Every member has its name here. One that is new is looked at below, unless every kernel there
  // is works without a look at it.
  [[maybe_unused]] auto const& [a, b, c, type_a, type_b, type_c, m, n, k, batch, a_batch, a_m, a_k,
                                b_batch, b_k, b_n, c_batch, c_m, c_n, alpha, beta, scale,
                                activation, bias, type_bias, bias_along, bias_stride, residual,
                                type_residual, residual_batch, residual_m, residual_n, compute,
                                accumulate, scale_a, scale_b, zero_point_a, zero_point_b,
                                zero_point_a_stride, zero_point_b_stride, device_scale, scale_out,
                                pre_activation, type_pre_activation, pre_activation_batch,
                                pre_activation_m, pre_activation_n, custom_epilogue, a_pointers,
                                b_pointers, c_pointers, offsets, type_offsets, offsets_stride,
                                groups, counts, counts_stride, outer, a_outer, b_outer, tile] = g;
  if (g.scale_a.data != nullptr) return "it does not scale A";
  if (g.scale_b.data != nullptr) return "it does not scale B";
  if (g.zero_point_a != nullptr || g.zero_point_b != nullptr) return "it has no zero points";
  if (g.device_scale != nullptr) return "it reads no scale from the device";
  if (g.scale_out != nullptr) return "it does not quantize its result";
  if (g.pre_activation != nullptr) return "it does not write the pre-activation";
  if (g.custom_epilogue) return "it does not contain the caller's epilogue function";
  if (g.a_pointers != nullptr || g.b_pointers != nullptr || g.c_pointers != nullptr)
    return "it takes no arrays of pointers";
  if (g.offsets != nullptr) return "it does not multiply groups of rows";
  if (g.counts != nullptr) return "it does not count the rows of each matrix";
  if (g.outer != 1) return "it does not sum over several products";
  if (g.tile != GemmTile{}) return "its tile cannot be set";
  return nullptr;
}

/// float16 × float16 → float32 on tensor cores through `nvcuda::wmma`, accumulating in float32;
/// sm_75 and newer.
///
/// - A and B are float16, each with a unit stride in one of its two dimensions (any of the four
/// transposes);
///   C is float32 with any strides that do not overlap; bias and residual are float32 or float16,
///   any strides. Pointers and strides that are multiples of 16 bytes load faster; nothing needs
///   them.
/// - Any m, n, k, batch ≥ 0. Elements outside the operands never enter a sum. k = 0 is a product of
/// zero.
/// - alpha, beta and scale are rounded to float32, in which the epilogue computes.
/// - `accepts` looks at the arguments only: it neither calls CUDA nor reads device memory.
/// - `launch` is asynchronous on the stream, allocates nothing, may be captured into a graph, and
/// returns 0 or
///   a `cudaError_t` (`error_string` has its text). An error that was pending before stays pending.
///   The stream must belong to `Device::ordinal`, which becomes current only for the time of the
///   call.
/// - Deterministic: the same arguments on the same kind of device give the same bits.
///
/// Source: CUDA C++ Programming Guide, "Warp Matrix Functions"; `wmma` in the PTX ISA,
/// section 9.7.15.
struct GemmSm75WmmaF16 {
  static constexpr char const* name = "gemm/sm75_wmma_f16";
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
/// along
///   K. Their addresses, their other
///   strides and their batch strides are multiples of 16 bytes (a batch stride may be 0). C, bias
///   and residual may have any strides; 16-byte aligned rows of C with nothing but alpha to apply
///   are stored faster.
/// - m, n, batch ≥ 0, k ≥ 1. Elements outside the operands never enter a sum.
/// - 8-bit factors may be scaled by one number, or by one for each row of A and column of B;
/// `device_scale` is read.
/// - The pre-activation is float16, bfloat16 or float32 of any strides; it is stored 16 bytes at a
///   time where its rows allow that.
/// - Sums are float32 in the tensor cores; float8 sums of more than 128 products go on in float32
/// registers unless
///   `accumulate` is fast. alpha, beta and scale are rounded to float32, in which the epilogue
///   computes.
/// - `tiles` lists what tiles the kernel has for a call, that which it would take first; the call
///   may ask for one of them. None where rows or columns are so few that it has no choice.
/// - Otherwise as GemmSm75WmmaF16: `accepts` makes no CUDA call; `launch` is asynchronous,
/// allocates nothing, may be
///   captured, and is deterministic. It may begin before the launch ahead of it in the stream has
///   ended, and waits for that one's results before it reads or writes anything.
///
/// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions" and "Tensor copies"; the
/// schedule is that of CUTLASS's warp-specialized persistent kernels as published.
struct GemmSm90WgmmaF16 {
  static constexpr char const* name = "gemm/sm90_wgmma_f16";
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static GemmTiles tiles(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// See GemmSm90WgmmaF16.
struct GemmSm90WgmmaBf16 {
  static constexpr char const* name = "gemm/sm90_wgmma_bf16";
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static GemmTiles tiles(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// See GemmSm90WgmmaF16.
struct GemmSm90WgmmaF8 {
  static constexpr char const* name = "gemm/sm90_wgmma_f8";
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static GemmTiles tiles(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// See GemmSm90WgmmaF16.
struct GemmSm90WgmmaS8 {
  static constexpr char const* name = "gemm/sm90_wgmma_s8";
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
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

/// float64 products by mma.sync on sm_90, fed by the copy engine: IEEE float64 sums. Addresses,
/// strides and batch strides of A and B are multiples of 16 bytes; k ≥ 1; products of few tiles are
/// left to GemmSm80MmaF64; otherwise what that takes, with its bound on errors.
struct GemmSm90MmaF64 {
  static constexpr char const* name = "gemm/sm90_mma_f64";
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
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static GemmTiles tiles(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// See GemmSm80MmaF16.
struct GemmSm80MmaBf16 {
  static constexpr char const* name = "gemm/sm80_mma_bf16";
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static GemmTiles tiles(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// See GemmSm80MmaF16.
struct GemmSm80MmaS8 {
  static constexpr char const* name = "gemm/sm80_mma_s8";
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static GemmTiles tiles(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// See GemmSm80MmaF16.
struct GemmSm80MmaF64 {
  static constexpr char const* name = "gemm/sm80_mma_f64";
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static GemmTiles tiles(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// See GemmSm80MmaF16.
struct GemmSm80MmaTf32 {
  static constexpr char const* name = "gemm/sm80_mma_tf32";
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static GemmTiles tiles(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// See GemmSm80MmaF16.
struct GemmSm80MmaTf32x3 {
  static constexpr char const* name = "gemm/sm80_mma_tf32x3";
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static GemmTiles tiles(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// See GemmSm80MmaF16.
struct GemmSm89MmaF8 {
  static constexpr char const* name = "gemm/sm89_mma_f8";
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
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// The same for bfloat16. See GemmSm90GroupedF16.
struct GemmSm90GroupedBf16 {
  static constexpr char const* name = "gemm/sm90_grouped_bf16";
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
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// The same for int8, with B's unit stride along K. C is int32 (exact, wraps; alpha 1, beta 0 or 1
/// and no epilogue) or what the others write. Scales of A are one or one for each row, of B one for
/// each group or one for each column. See GemmSm90GroupedF16.
struct GemmSm90GroupedS8 {
  static constexpr char const* name = "gemm/sm90_grouped_s8";
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
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// The same for float64, summed by mma.sync, eight k at a time in the order 0 2 4 6, 1 3 5 7.
struct GemmSm80SmallF64 {
  static constexpr char const* name = "gemm/sm80_small_f64";
  static Verdict accepts(GemmArgs const& args, Device const& device) noexcept;
  static int launch(GemmArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
