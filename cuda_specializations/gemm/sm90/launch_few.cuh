// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// gemm/sm90_wgmma_*: launches of products with few tiles or columns, of which clusters share out
/// K.
#pragma once

#include "common/limits.cuh"
#include "kernel_split_k.cuh"
#include "launch.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// One tile for a cluster of `splits` blocks. `wave_rows`: rows of each 64-row product that are
/// used, a multiple of 8; all 64 of an MN-major A.
template <class Config>
cudaError_t launch_split(abi::GemmArgs const& g, int splits, int wave_rows, CUstream_st* stream,
                         GatedPart const* gated = nullptr) {
  if (Config::mn_a) wave_rows = 64;
  Sm90Params p{};
  cudaError_t const status = make_params<Config>(g, wave_rows, Config::tile_n, p);
  if (status != cudaSuccess) return status;
  if constexpr (Config::gated) {
    cudaError_t const made = make_tensor_map(&p.up, gated->up, Config::tile_k, wave_rows);
    if (made != cudaSuccess) return made;
    p.gate = gated->activation;
  }
  p.store = choose_store(g.c_n == 1 ? g : transposed(g), only_factors(g) && !has_8_bits(g.type_c));
  if (p.store == Sm90Store::words) p.store = Sm90Store::vectors;
  if (g.pre_activation != nullptr) p.store = Sm90Store::elements;
  if (p.store != Sm90Store::elements) p.epilogue.along_m = g.c_n != 1;
  p.wave_rows = wave_rows;
  p.tiles = {blocks_of(g.m, wave_rows * (Config::gated ? 1 : Config::waves)),
             blocks_of(g.n, Config::tile_n), g.batch, 16};
  p.splits = splits;
  if constexpr (Config::leads) {
    constexpr int bytes = sizeof(typename Config::A);
    p.lead = {static_cast<unsigned char const*>(g.a), g.a_m * bytes, g.a_batch * bytes, lead_lines};
  }
  std::int64_t const tiles = std::int64_t{p.tiles.clusters_m} * p.tiles.tiles_n * p.tiles.batch;
  return launch_clusters(sm90_split_kernel<Config>, static_cast<int>(tiles) * splits, splits,
                         Config::threads, Config::shared_bytes, stream, p);
}

/// Launches with as many stages as let two blocks share a multiprocessor, or with all of its shared
/// memory where each has one block.
template <class Pair, class Deep>
cudaError_t launch_planned(abi::GemmArgs const& g, abi::Device const& device,
                           Destination const& to) {
  if (to.tiles != nullptr) return cudaSuccess;  // there is no choice of tiles
  SplitPlan const plan = plan_split<Pair>(g, device);
  return plan.one_each ? launch_split<Deep>(g, plan.splits, plan.wave_rows, to.stream)
                       : launch_split<Pair>(g, plan.splits, plan.wave_rows, to.stream);
}

/// Stages of 64 rows of A and `width` columns of B that fit into so many bytes; an MN-major B comes
/// 64 columns wide, however few there are.
constexpr int stages_within(int bytes, int width, bool mn_b, int steps, bool promoted) {
  int const columns = mn_b && width < 64 ? 64 : width;
  int const factors = promoted ? factor_slot_bytes(64, width) : 0;
  return bytes / ((64 + columns) * 128 * steps + factors + 16);
}

template <class A, class B, bool MnA, bool MnB, bool Promoted, int Width>
cudaError_t launch_few_tiles(abi::GemmArgs const& g, abi::Device const& device,
                             Destination const& to) {
  constexpr int steps = Width == 16 && !Promoted ? 2 : 1;
  constexpr int half = sm90_share_of_shared(2) - 2048, whole = 2 * half + 2048;
  return launch_planned<
      Sm90SplitConfig<A, B, MnA, MnB, 1, Width, stages_within(half, Width, MnB, 1, Promoted), 2,
                      Promoted>,
      Sm90SplitConfig<A, B, MnA, MnB, 1, Width, stages_within(whole, Width, MnB, steps, Promoted),
                      1, Promoted, steps>>(g, device, to);
}

/// Launches a call for one pair of element types and one pair of layouts in tiles of `width`
/// columns.
template <class A, class B, bool MnA, bool MnB, bool Promoted>
cudaError_t launch_few(int width, abi::GemmArgs const& g, abi::Device const& device,
                       Destination const& to) {
  if (width == 16) return launch_few_tiles<A, B, MnA, MnB, Promoted, 16>(g, device, to);
  if (width == 32) return launch_few_tiles<A, B, MnA, MnB, Promoted, 32>(g, device, to);
  if constexpr (!Promoted)
    if (width == 128) return launch_few_tiles<A, B, MnA, MnB, Promoted, 128>(g, device, to);
  return launch_few_tiles<A, B, MnA, MnB, Promoted, 64>(g, device, to);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
