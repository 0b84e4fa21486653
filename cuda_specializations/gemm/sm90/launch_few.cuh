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

template <class A, class B, class Layout, class Pair, class Deep>
cudaError_t launch_few_tiles(abi::GemmArgs const& g, abi::Device const& device,
                             Destination const& to) {
  return launch_planned<Sm90SplitConfig<A, B, Layout, Pair>, Sm90SplitConfig<A, B, Layout, Deep>>(
      g, device, to);
}

/// Launches a call for one pair of element types and one pair of layouts in tiles of `width`
/// columns.
template <class A, class B, class Layout>
cudaError_t launch_few(int width, abi::GemmArgs const& g, abi::Device const& device,
                       Destination const& to) {
  using namespace sm90_gemm_shapes;
  if (width == 16) return launch_few_tiles<A, B, Layout, Few16, Few16Deep>(g, device, to);
  if (width == 32) return launch_few_tiles<A, B, Layout, Few32, Few32Deep>(g, device, to);
  if (width == 128) return launch_few_tiles<A, B, Layout, Few128, Few128Deep>(g, device, to);
  return launch_few_tiles<A, B, Layout, Few64, Few64Deep>(g, device, to);
}

/// The same of promoted sums, whose operands have their unit strides along K.
template <class A, class B>
cudaError_t launch_few_promoted(int width, abi::GemmArgs const& g, abi::Device const& device,
                                Destination const& to) {
  using namespace sm90_gemm_shapes;
  if (width == 16)
    return launch_few_tiles<A, B, layouts::TN, Promoted<Few16>, Promoted<Few16Deep>>(g, device, to);
  if (width == 32)
    return launch_few_tiles<A, B, layouts::TN, Promoted<Few32>, Promoted<Few32Deep>>(g, device, to);
  return launch_few_tiles<A, B, layouts::TN, Promoted<Few64>, Promoted<Few64Deep>>(g, device, to);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
