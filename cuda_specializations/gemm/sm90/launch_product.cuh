// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// gemm/sm90_wgmma_*: what they accept, and which launch a call goes to. Each element type has a
/// translation unit of its own, which includes this and no kernel, and others for the launches, so
/// that those of one kernel compile alone.
#pragma once

#include <cassert>

#include "accepts.cuh"
#include "cost.cuh"
#include "gemm/shared/tile_choice.cuh"
#include "shapes.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// Launches a call that is accepted, oriented and has elements to write, or lists its tiles.
using Sm90Product = cudaError_t(abi::GemmArgs const& g, abi::Device const& device,
                                Destination const& to);
/// The same for a call with few tiles or columns, in tiles of so many.
using Sm90FewProduct = cudaError_t(int width, abi::GemmArgs const& g, abi::Device const& device,
                                   Destination const& to);

/// Launches by the layouts of A and B, each with its kernels in a translation unit of its own.
/// Ordinary functions: nvcc names kernels after one, else after the process.
struct Sm90ProductsBf16 {
  static Sm90FewProduct few_k, few_mn;  ///< A's unit stride is along K, along M
  static Sm90Product many_k, many_mn;   ///< both along K, others
};
struct Sm90ProductsF16 {
  static Sm90FewProduct few_k, few_mn;
  static Sm90Product many_k, many_mn;
};
/// The same by element types of A and B.
struct Sm90ProductsF8 {
  static Sm90Product e4m3, e4m3_e5m2, e5m2_e4m3, e5m2;
};

namespace {

/// Columns of the tiles of a call that has few of them or few columns; 0: it has many.
template <sm90_gemm_shapes::Kind Of>
int width_of_few(abi::GemmArgs const& g, abi::Device const& device) {
  if (g.n <= 16) return 16;
  if (g.n <= 32) return 32;
  // Up to 128 columns reading A bounds the time, and tiles of 128 rows are too few to do it.
  // (Promoted sums would need more registers than two blocks leave.)
  if (Of != sm90_gemm_shapes::Kind::promoted && g.n > 64 && g.n <= 128 && few_columns(g, device) &&
      blocks_of(g.m, 64) * g.batch * 3 > device.sm_count)
    return 128;
  // Tiles of 64 × 64 too, as long as every one has a place at once.
  bool const few = blocks_of(g.m, 64) * blocks_of(g.n, 64) * g.batch <= device.sm_count;
  return g.n <= 64 || few ? 64 : 0;
}

/// Launches a product of 16-bit types.
template <class Products>
cudaError_t launch_16bit(abi::GemmArgs const& g, abi::Device const& device, Destination const& to) {
  bool const mn_a = major_a(g) == Major::mn, mn_b = major_b(g) == Major::mn;
  int const width =
      takes_parts(g, device) ? 0 : width_of_few<sm90_gemm_shapes::Kind::plain>(g, device);
  if (width != 0)
    return mn_a ? Products::few_mn(width, g, device, to) : Products::few_k(width, g, device, to);
  return mn_a || mn_b ? Products::many_mn(g, device, to) : Products::many_k(g, device, to);
}

/// The tiles that a call can have, all else about which is accepted.
inline abi::GemmTiles tiles_of_sm90(abi::GemmArgs const& args, abi::Device const& device,
                                    Sm90Product* launch) {
  abi::GemmTiles list;
  if (args.m == 0 || args.n == 0 || args.batch == 0) return list;
  launch(oriented(args, device), device, {nullptr, &list});
  return is_transposed(args, device) ? transposed(list) : list;
}

template <class A, class B>
abi::Verdict accepts_sm90(abi::GemmArgs const& g, abi::Device const& device, Sm90Product* launch) {
  char const* reason = refuse_sm90<A, B>(g, device);
  if (reason == nullptr && g.tile != abi::GemmTile{} && tiles_of_sm90(g, device, launch).count == 0)
    reason = no_such_tile;
  return reason == nullptr ? abi::accepted() : abi::refused(reason);
}

template <class A, class B>
abi::GemmTiles list_tiles_sm90(abi::GemmArgs const& g, abi::Device const& device,
                               Sm90Product* launch) {
  return refuse_sm90<A, B>(g, device) == nullptr ? tiles_of_sm90(g, device, launch)
                                                 : abi::GemmTiles{};
}

template <class A, class B>
int run_sm90(abi::GemmArgs const& args, abi::Device const& device, CUstream_st* stream,
             Sm90Product* launch) {
  assert((accepts_sm90<A, B>(args, device, launch).ok));
  if (args.m == 0 || args.n == 0 || args.batch == 0) return cudaSuccess;
  ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  return launch(oriented(args, device), device, {stream, nullptr});
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
