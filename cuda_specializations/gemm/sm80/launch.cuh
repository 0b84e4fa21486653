// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// gemm/sm80_mma_*, gemm/sm89_mma_f8 and gemm/sm80_simt_f32: what they accept, which configuration
/// they take, and their launch.
#pragma once

#include <algorithm>

#include "common/check.cuh"
#include "common/limits.cuh"
#include "gemm/shared/product.cuh"
#include "gemm/shared/tile_choice.cuh"
#include "kernel.cuh"
#include "kernel_simt_f32.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Bytes that may be copied at a time: all rows and matrices begin at a multiple of them.
inline int copy_unit(void const* data, int size, std::int64_t batch, std::int64_t batch_stride,
                     std::int64_t rows, std::int64_t stride) {
  for (int unit : {16, 8, 4}) {
    if (unit <= size) break;
    if (reinterpret_cast<std::uintptr_t>(data) % static_cast<unsigned>(unit) == 0 &&
        (batch <= 1 || batch_stride * size % unit == 0) && (rows <= 1 || stride * size % unit == 0))
      return unit;
  }
  return size;
}

/// `data` is null where matrices lie behind pointers, whose alignment is the kernel's to find out.
inline Sm80Operand make_operand(void const* data, DType type, Major major, std::int64_t batch,
                                std::int64_t batch_stride, std::int64_t mn, std::int64_t stride_mn,
                                std::int64_t k, std::int64_t stride_k) {
  int const size = dtype_size(type);
  bool const along_mn = major == Major::mn;
  std::int64_t const rows = along_mn ? k : mn, stride = along_mn ? stride_k : stride_mn;
  return {data, data != nullptr ? batch_stride * size : batch_stride, rows <= 1 ? 0 : stride * size,
          copy_unit(data, size, data != nullptr ? batch : 1, batch_stride, rows, stride),
          type == DType::float8_e5m2};
}

inline Sm80Lists make_lists(abi::GemmArgs const& g) {
  Sm80Lists l{};
  l.a = g.a_pointers, l.b = g.b_pointers, l.c = g.c_pointers;
  l.offsets = g.offsets, l.wide = g.type_offsets == DType::int64;
  l.offsets_stride = g.offsets_stride, l.groups = static_cast<int>(g.groups);
  l.counts = g.counts, l.counts_stride = g.counts_stride;
  l.exist = l.a != nullptr || l.b != nullptr || l.c != nullptr || l.offsets != nullptr ||
            l.counts != nullptr;
  return l;
}

/// Matrices of B, as many as products or groups.
inline std::int64_t matrices(abi::GemmArgs const& g) {
  return g.offsets != nullptr ? g.groups : g.batch;
}

/// Tiles of C. Where the rows are grouped, as many as any partition of them may need: group g has
/// the rows of tiles from offset(g) / tile + g on.
inline std::int64_t tiles_along_m(abi::GemmArgs const& g, int tile) {
  return g.offsets != nullptr ? g.m / tile + g.groups : blocks_of(g.m, tile);
}

/// Whether rows of C can be stored 16 bytes at a time, with nothing but alpha to apply.
inline bool stores_whole(abi::GemmArgs const& g) {
  int const size = dtype_size(g.type_c);
  bool const converts =
      has_8_bits(g.type_c) || (g.type_a == DType::int8 && g.type_c != DType::int32);
  bool const behind = g.c_pointers != nullptr;
  return only_alpha(g) && !converts && (g.c_n == 1 || g.n == 1) && g.n * size % 16 == 0 &&
         copy_unit(behind ? nullptr : g.c, size, behind ? 1 : g.batch, g.c_batch, g.m, g.c_m) == 16;
}

/// Whether a call neither reads nor writes anything.
inline bool nothing_to_do(abi::GemmArgs const& g) {
  return g.m == 0 || g.n == 0 || g.batch == 0 || matrices(g) == 0;
}

/// First reason not to take a call, whatever its element types; null if there is none.
/// `architecture`: the first that has the instructions, as 10 major + minor.
inline char const* refuse_mma(abi::GemmArgs const& g, abi::Device const& device, int architecture) {
  if (device.compute_major == 0) return "no CUDA device";
  if (!device.at_least(architecture / 10, architecture % 10))
    return architecture == 80 ? "device is older than sm_80" : "device is older than sm_89";
  if (device.shared_memory_per_block_optin < sm80_shared_bytes)
    return "the device gives a block less than 99 KiB of shared memory";
  bool const bytes = dtype_size(g.type_a) == 1;
  using Option = abi::GemmOption;
  if (char const* reason = abi::beyond(g, (abi::epilogue_gemm_options | abi::sm80_gemm_options)
                                              .with(Option::scale_out, has_8_bits(g.type_c))
                                              .with(Option::scale_a, bytes)
                                              .with(Option::scale_b, bytes)
                                              .with(Option::zero_point_a, g.type_a == DType::int8)
                                              .with(Option::zero_point_b, g.type_a == DType::int8)))
    return reason;
  if (!factors_fit(g.scale_a, true) || !factors_fit(g.scale_b, false))
    return "its scales are one for a matrix, or one for a row of A or a column of B";
  if (g.bias != nullptr && !readable_beside(g.type_bias, g.type_c))
    return "it does not read the bias's element type";
  if (g.residual != nullptr && !readable_beside(g.type_residual, g.type_c))
    return "it does not read the residual's element type";
  if (char const* reason = refuse_pre_activation(g)) return reason;
  if (g.m < 0 || g.n < 0 || g.k < 0 || g.batch < 0) return "an extent is negative";
  if (g.groups < 0) return "an extent is negative";
  if (nothing_to_do(g)) return nullptr;
  if (g.c == nullptr && g.c_pointers == nullptr) return "C is a null pointer";
  if ((g.m > 1 && g.c_m == 0) || (g.n > 1 && g.c_n == 0) || (g.batch > 1 && g.c_batch == 0))
    return "C has a zero stride, so its elements overlap";
  constexpr std::int64_t most = std::int64_t{1} << 30;
  if (g.m > most || g.n > most || g.k > most || g.batch > most || g.groups > most ||
      tiles_along_m(g, 64) * blocks_of(g.n, 64) > most / g.batch)
    return "C is too large for one launch";
  if (g.k == 0) return nullptr;  // A and B are empty
  if (g.a == nullptr && g.a_pointers == nullptr) return "A is a null pointer";
  if (g.b == nullptr && g.b_pointers == nullptr) return "B is a null pointer";
  if (major_a(g) == Major::neither) return "A has no unit stride";
  if (major_b(g) == Major::neither) return "B has no unit stride";
  return nullptr;
}

/// The same for a kernel's element types: what it multiplies and which C it writes.
template <class Type>
char const* refuse_sm80(abi::GemmArgs const& g, abi::Device const& device) {
  constexpr DType type = Type::dtype;
  if (g.type_a != type || g.type_b != type) return "it multiplies other element types";
  if constexpr (type == DType::float64 || type == DType::float32) {
    if (g.type_c != type) return "it does not write C's element type";
  } else {
    bool const floating = writable(g.type_c);
    if (!floating && !(type == DType::int8 && g.type_c == DType::int32))
      return "it does not write C's element type";
    if (!floating && !exact_in_int32(g)) return not_exact_in_int32;
    if (char const* reason = refuse_quantized(g)) return reason;
  }
  return refuse_mma(g, device, 80);
}

/// The kernel that a configuration shapes.
template <class Config>
constexpr auto sm80_kernel() {
  if constexpr (std::is_same_v<typename Config::Type, SimtFloat>)
    return sm80_simt_f32_kernel<Config>;
  else
    return sm80_mma_kernel<Config>;
}

template <class Config>
cudaError_t launch_sm80(abi::GemmArgs const& g, int splits, CUstream_st* stream) {
  Sm80Params p{};
  p.a = make_operand(g.a_pointers != nullptr ? nullptr : g.a, g.type_a, major_a(g), g.batch,
                     g.a_batch, g.m, g.a_m, g.k, g.a_k);
  p.b = make_operand(g.b_pointers != nullptr ? nullptr : g.b, g.type_b, major_b(g), matrices(g),
                     g.b_batch, g.n, g.b_n, g.k, g.b_k);
  p.lists = make_lists(g);
  std::int64_t const tiles_m = tiles_along_m(g, Config::tile_m),
                     tiles_n = blocks_of(g.n, Config::tile_n);
  p.tiles = {static_cast<unsigned>(tiles_m), static_cast<unsigned>(tiles_n),
             static_cast<unsigned>(std::max(1, 1024 / Config::tile_m))};
  p.m = static_cast<int>(g.m), p.n = static_cast<int>(g.n), p.k = static_cast<int>(g.k);
  p.splits = splits;
  p.whole = stores_whole(g);
  p.one_part = g.accumulate == abi::Accumulate::fast && dtype_size(g.type_a) == 1;
  p.epilogue = make_epilogue(g);
  p.alpha = g.alpha, p.beta = g.beta, p.scale = g.scale;
  p.zero_a = g.zero_point_a, p.zero_a_stride = g.zero_point_a_stride;
  p.zero_b = g.zero_point_b, p.zero_b_stride = g.zero_point_b_stride;
  return launch_kernel(sm80_kernel<Config>(),
                       dim3(static_cast<unsigned>(tiles_m * tiles_n * g.batch * splits)),
                       Config::threads, stream, p, Config::shared_bytes, splits);
}

/// Blocks that share out K of each tile, and the work of the busiest multiprocessor then.
struct Sm80Plan {
  int splits;
  double cost;
};

/// Work counts the stages of a block and what the sum over its cluster takes, about four stages.
template <class Config>
Sm80Plan plan_sm80(abi::GemmArgs const& g, abi::Device const& device) {
  constexpr double sum = 4;
  int const sms = std::max(1, device.sm_count);
  std::int64_t const tiles =
      tiles_along_m(g, Config::tile_m) * blocks_of(g.n, Config::tile_n) * g.batch;
  std::int64_t const stages = std::max<std::int64_t>(1, blocks_of(g.k, Config::tile_k));
  bool const splits = has_code_for_sm90() && device.compute_major == 9 && g.offsets == nullptr &&
                      g.counts == nullptr;
  int best = 1;
  double least = static_cast<double>(blocks_of(tiles, sms) * stages);
  for (int s = 2; splits && s <= Config::most_splits && 2 * s <= stages; s *= 2) {
    double const work = static_cast<double>(blocks_of(tiles * s, sms)) *
                        (static_cast<double>(blocks_of(stages, s)) + sum);
    if (work < least) least = work, best = s;
  }
  return {best,
          least / static_cast<double>(stages) * Config::tile_m * Config::tile_n * Config::slack};
}

/// Of two shapes takes the one whose busiest multiprocessor has less to do, or lists their tiles.
template <class Large, class Small>
cudaError_t launch_cheaper(abi::GemmArgs const& g, abi::Device const& device,
                           Destination const& to) {
  constexpr abi::GemmTile tiles[] = {{Large::tile_m, Large::tile_n, Large::tile_k},
                                     {Small::tile_m, Small::tile_n, Small::tile_k}};
  Sm80Plan const plans[] = {plan_sm80<Large>(g, device), plan_sm80<Small>(g, device)};
  double const costs[] = {plans[0].cost, plans[1].cost};
  int const best = choose_tile(g, tiles, costs, to);
  if (to.tiles != nullptr) return cudaSuccess;
  return best == 0   ? launch_sm80<Large>(g, plans[0].splits, to.stream)
         : best == 1 ? launch_sm80<Small>(g, plans[1].splits, to.stream)
                     : cudaErrorInvalidValue;
}

template <class Type, class Layout, class Shape>
using Sm80ConfigOf =
    std::conditional_t<std::is_same_v<Type, SimtFloat>, SimtF32Config<Layout, Shape>,
                       Sm80Config<Type, Layout, Shape>>;

/// The same for the layouts of A and B.
template <class Type, class Large, class Small>
cudaError_t launch_layout_sm80(abi::GemmArgs const& g, abi::Device const& device,
                               Destination const& to) {
  return layouts::with_layout(
      major_a(g) == Major::mn, major_b(g) == Major::mn, [&]<class Layout>(Layout) {
        return launch_cheaper<Sm80ConfigOf<Type, Layout, Large>, Sm80ConfigOf<Type, Layout, Small>>(
            g, device, to);
      });
}

/// Kernels run with C's unit stride along N, but for rows that are grouped or counted: they stay
/// rows.
inline bool is_transposed_sm80(abi::GemmArgs const& g) {
  return g.c_n != 1 && g.c_m == 1 && g.offsets == nullptr && g.counts == nullptr;
}

/// What the entries of a kernel do that has a larger and a smaller shape.
template <class Type, class Large = sm80_gemm_shapes::M128N128,
          class Small = sm80_gemm_shapes::M64N64>
struct Sm80Product {
  /// The tiles that a call with this verdict can have.
  static abi::GemmTiles tiles(abi::Verdict const& verdict, abi::GemmArgs const& g,
                              abi::Device const& device) {
    abi::GemmTiles list;
    if (!verdict.ok || nothing_to_do(g)) return list;
    bool const transposes = is_transposed_sm80(g);
    launch_layout_sm80<Type, Large, Small>(transposes ? transposed(g) : g, device,
                                           {nullptr, &list});
    return transposes ? transposed(list) : list;
  }

  /// A call is taken unless there is a reason not to, or no tile as the caller wants it.
  static abi::Verdict accepts(char const* reason, abi::GemmArgs const& g,
                              abi::Device const& device) {
    if (reason != nullptr) return abi::refused(reason);
    bool const any = g.tile == abi::GemmTile{} || tiles(abi::accepted(), g, device).count != 0;
    return any ? abi::accepted() : abi::refused(no_such_tile);
  }

  /// Runs a call that was accepted: 0 or a cudaError_t.
  static int launch(abi::GemmArgs const& g, abi::Device const& device, CUstream_st* stream) {
    if (nothing_to_do(g)) return cudaSuccess;
    ScopedDevice const current(device.ordinal);
    if (current.status() != cudaSuccess) return current.status();
    return launch_layout_sm80<Type, Large, Small>(is_transposed_sm80(g) ? transposed(g) : g, device,
                                                  {stream, nullptr});
  }
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
