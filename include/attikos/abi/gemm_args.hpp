// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What crosses the wall for a matrix product: one plain struct.
#pragma once

#include <attikos/abi/compute.hpp>
#include <attikos/abi/dtype.hpp>
#include <attikos/abi/option_members.hpp>
#include <attikos/abi/scale_grid.hpp>
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
/// A and B are multiplied by their scales, and zero points are subtracted from them. A member that
/// may be left at its default is an option, which a kernel names in its list or refuses.
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
  ATTIKOS_OPTION_FACTORS(ATTIKOS_CXX_OPTION_MEMBER)
  ATTIKOS_OPTION_SCALE(ATTIKOS_CXX_OPTION_MEMBER)
  ATTIKOS_OPTION_ACTIVATION(ATTIKOS_CXX_OPTION_MEMBER)
  void const* bias = nullptr;
  DType type_bias = DType::float32;
  BiasAlong bias_along = BiasAlong::n;
  std::int64_t bias_stride = 0;
  void const* residual = nullptr;
  DType type_residual = DType::float32;
  std::int64_t residual_batch = 0, residual_m = 0, residual_n = 0;

  /// What the caller allows; a kernel may be more precise than that.
  ATTIKOS_OPTION_COMPUTE(ATTIKOS_CXX_OPTION_MEMBER)
  ATTIKOS_OPTION_ACCUMULATE(ATTIKOS_CXX_OPTION_MEMBER)
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
  /// B in the panels that a host's instructions read, see gemm/packed_b.hpp; b is then not read.
  void const* packed_b = nullptr;
};

/// What a call may ask for beyond the product itself. See options.hpp.
#define ATTIKOS_GEMM_ARGUMENTS(X)                                          \
  X(alpha, "it has no alpha")                                              \
  X(beta, "it has no beta")                                                \
  X(scale, "it has no scale")                                              \
  X(activation, "it has no activation")                                    \
  X(bias, "it has no bias")                                                \
  X(bias_along, "its bias has one entry for each column")                  \
  X(residual, "it has no residual")                                        \
  X(scale_a, "it does not scale A")                                        \
  X(scale_b, "it does not scale B")                                        \
  X(zero_point_a, "it has no zero points")                                 \
  X(zero_point_b, "it has no zero points")                                 \
  X(device_scale, "it reads no scale from the device")                     \
  X(scale_out, "it does not quantize its result")                          \
  X(pre_activation, "it does not write the pre-activation")                \
  X(custom_epilogue, "it does not contain the caller's epilogue function") \
  X(a_pointers, "it takes no arrays of pointers")                          \
  X(b_pointers, "it takes no arrays of pointers")                          \
  X(c_pointers, "it takes no arrays of pointers")                          \
  X(offsets, "it does not multiply groups of rows")                        \
  X(counts, "it does not count the rows of each matrix")                   \
  X(outer, "it does not sum over several products")                        \
  X(tile, "its tile cannot be set")                                        \
  X(packed_b, "it reads no packed B")

enum class GemmOption : std::uint8_t { ATTIKOS_GEMM_ARGUMENTS(ATTIKOS_ARGUMENT_ENUMERATOR) };
using GemmOptionSet = OptionSet<GemmOption>;

constexpr bool is_asked(ScaleGrid const& given, ScaleGrid const&) noexcept {
  return given.data != nullptr;
}

/// The options that a call uses. Types, extents, strides and what `compute` and `accumulate` allow
/// are not options: every kernel checks those itself.
constexpr GemmOptionSet options_of(GemmArgs const& args) noexcept {
  // Every member is named here. A new one is an option and gets a row above, unless all kernels
  // work without looking at it.
  [[maybe_unused]] auto const& [a, b, c, type_a, type_b, type_c, m, n, k, batch, a_batch, a_m, a_k,
                                b_batch, b_k, b_n, c_batch, c_m, c_n, alpha, beta, scale,
                                activation, bias, type_bias, bias_along, bias_stride, residual,
                                type_residual, residual_batch, residual_m, residual_n, compute,
                                accumulate, scale_a, scale_b, zero_point_a, zero_point_b,
                                zero_point_a_stride, zero_point_b_stride, device_scale, scale_out,
                                pre_activation, type_pre_activation, pre_activation_batch,
                                pre_activation_m, pre_activation_n, custom_epilogue, a_pointers,
                                b_pointers, c_pointers, offsets, type_offsets, offsets_stride,
                                groups, counts, counts_stride, outer, a_outer, b_outer, tile,
                                packed_b] = args;
  using Option = GemmOption;
  constexpr GemmArgs unasked{};
  return GemmOptionSet() ATTIKOS_GEMM_ARGUMENTS(ATTIKOS_ARGUMENT_ASKED);
}

/// Why a kernel that takes these options alone refuses a call: the reason of the first option that
/// the call uses and the kernel does not take; null if there is none.
constexpr char const* beyond(GemmArgs const& args, GemmOptionSet takes) noexcept {
  using Option = GemmOption;
  constexpr OptionReason<Option> reasons[] = {ATTIKOS_GEMM_ARGUMENTS(ATTIKOS_ARGUMENT_REASON)};
  return first_unknown(reasons, options_of(args), takes);
}

/// The plain product and its epilogue.
inline constexpr GemmOptionSet plain_gemm_options{
    GemmOption::alpha, GemmOption::beta,       GemmOption::scale,   GemmOption::activation,
    GemmOption::bias,  GemmOption::bias_along, GemmOption::residual};

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
