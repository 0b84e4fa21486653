// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// gemm/sm90_wgmma_*: what a kernel is told of a call, and launches of those that go through tiles.
#pragma once

#include <algorithm>

#include "accepts.cuh"
#include "cost.cuh"
#include "gemm/shared/tile_choice.cuh"
#include "kernel.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// How C can be stored where its unit stride is along N; nothing else is stored by more than one.
/// `in_registers`: elements of 16 or 8 bits are finished before they are stored.
inline Sm90Store choose_store(abi::GemmArgs const& g, bool in_registers) {
  int const bytes = dtype_size(g.type_c);
  bool const converts = g.type_a == DType::int8 && g.type_c != DType::int32;
  bool const finished = bytes < 4 ? in_registers : only_alpha(g) && !converts;
  if (g.c_n != 1 && g.n != 1) return Sm90Store::elements;
  // The copy engine stores whole groups of 16 bytes, also past the last column.
  if (finished && multiple_of_16(g.n * bytes) &&
      refuse_tensor_map(source_c(g), "", "", "") == nullptr && (g.batch == 1 || g.c_batch != 0))
    return bytes == 4 ? Sm90Store::words : bytes == 2 ? Sm90Store::halves : Sm90Store::bytes;
  bool const single = g.beta != 0 && (g.residual != nullptr || g.type_c == DType::int32);
  bool const by_four = g.c_n == 1 && !single &&
                       reinterpret_cast<std::uintptr_t>(g.c) % (4 * bytes) == 0 &&
                       (g.m == 1 || g.c_m % 4 == 0) && (g.batch == 1 || g.c_batch % 4 == 0);
  return by_four ? Sm90Store::vectors : Sm90Store::elements;
}

/// Whether sums need no more than factors before the copy engine stores them.
inline bool has_factors_alone(abi::GemmArgs const& g) {
  Sm90Store const store = choose_store(g, goes_by_pairs(g));
  return store == Sm90Store::words ||
         (store == Sm90Store::halves &&
          (only_factors(g) || (dtype_size(g.type_a) == 1 && only_row_column_factors(g))));
}

/// What a gated product has beside a plain one.
struct GatedPart {
  TensorMapSource up;
  Activation activation;
};

/// What both kernels need; boxes of K-major operands hold `rows_a` and `rows_b` rows.
template <class Config>
cudaError_t make_params(abi::GemmArgs const& g, int rows_a, int rows_b, Sm90Params& p) {
  p.epilogue = make_epilogue(g);
  p.epilogue.more_than_alpha = !only_alpha(g);
  p.epilogue.only_factors = only_factors(g);
  p.epilogue.only_added = only_added(g);
  p.epilogue.only_row_column_factors = only_row_column_factors(g);
  if (along_blocks(g.scale_a, true)) p.block_a = g.scale_a, p.epilogue.row_factors = nullptr;
  if (along_blocks(g.scale_b, false)) p.block_b = g.scale_b, p.epilogue.column_factors = nullptr;
  bool const any = p.block_a.data != nullptr || p.block_b.data != nullptr;
  p.block_factors = any ? BlockFactors::fetched : BlockFactors::none;
  bool const k_a = major_a(g) == Major::k, k_b = major_b(g) == Major::k;
  cudaError_t status =
      make_tensor_map(&p.a, source_a<typename Config::A>(g),
                      k_a ? Config::tile_k : static_cast<int>(128 / sizeof(typename Config::A)),
                      k_a ? rows_a : Config::tile_k);
  if (status != cudaSuccess) return status;
  p.k_blocks = static_cast<int>(blocks_of(g.k, Config::tile_k));
  p.a_batch_step = g.a_batch != 0, p.b_batch_step = g.b_batch != 0;
  p.m = static_cast<int>(g.m), p.n = static_cast<int>(g.n);
  return make_tensor_map(&p.b, source_b<typename Config::B>(g),
                         k_b ? Config::tile_k : static_cast<int>(128 / sizeof(typename Config::B)),
                         k_b ? rows_b : Config::tile_k);
}

template <class Config>
cudaError_t launch_sm90(abi::GemmArgs const& g, abi::Device const& device, CUstream_st* stream,
                        GatedPart const* gated = nullptr) {
  Sm90Params p{};
  cudaError_t status = make_params<Config>(
      g, Config::tile_m, Config::gated ? Config::out_n : Config::tile_n / Config::cluster, p);
  if (status != cudaSuccess) return status;
  if constexpr (Config::copied_places != 0) {
    status = copy_factors<Config>(g, p);
    if (status != cudaSuccess) return status;
  }
  bool const in_registers = goes_by_pairs(g) && (!has_8_bits(g.type_c) || Config::writes_bytes);
  p.store = choose_store(g, in_registers);
  bool along_m = false;
  if (Config::registers_a && p.store == Sm90Store::elements) {
    // Pairs of C or a residual would have to lie along M.
    p.store = choose_store(transposed(g), in_registers && g.beta == 0 && g.residual == nullptr &&
                                              !has_8_bits(g.type_c));
    along_m = p.store != Sm90Store::elements;
  }
  if (p.store != Sm90Store::elements) p.epilogue.along_m = along_m;
  if (Config::reads_ahead && p.store == Sm90Store::halves && p.epilogue.only_row_column_factors) {
    Epilogue& e = p.epilogue;
    auto const differ = [&](float const* factors, std::int64_t stride, std::int64_t of_batch) {
      return factors != nullptr && (stride != 0 || (g.batch > 1 && of_batch != 0));
    };
    e.rows_ahead = differ(e.row_factors, e.row_factors_stride, e.row_factors_batch);
    e.columns_ahead = differ(e.column_factors, e.column_factors_stride, e.column_factors_batch);
  }
  if constexpr (Config::gated) {
    status = make_tensor_map(&p.up, gated->up, Config::tile_k, Config::out_n);
    if (status != cudaSuccess) return status;
    p.gate = gated->activation;
  }
  if (p.store != Sm90Store::vectors && p.store != Sm90Store::elements) {
    int const line = 128 / dtype_size(g.type_c);
    status = along_m ? make_tensor_map(&p.c, source_c(transposed(g)), line, line)
                     : make_tensor_map(&p.c, source_c(g), line, 64);
    if (status != cudaSuccess) return status;
  }
  std::int64_t const clusters_m = blocks_of(g.m, Config::tile_m * Config::cluster);
  std::int64_t const tiles_n = blocks_of(g.n, Config::out_n);
  p.tiles = {clusters_m, tiles_n, g.batch, 16 * 128 / (Config::tile_m * Config::cluster)};
  std::int64_t const clusters = clusters_m * tiles_n * g.batch;
  // Blocks that share out K have one tile each: their sums lie where its stages were.
  std::int64_t const resident =
      Config::splits > 1 ? clusters : std::max(1, device.sm_count / Config::blocks);
  int const grid = static_cast<int>(std::min(clusters, resident)) * Config::blocks;
  return launch_clusters(sm90_gemm_kernel<Config>, grid, Config::blocks, Config::threads,
                         Config::shared_bytes, stream, p);
}

/// Launches the cheapest configuration, or lists the tiles of all of them.
template <class... Configs>
cudaError_t launch_cheapest(abi::GemmArgs const& g, abi::Device const& device,
                            Destination const& to, GatedPart const* gated = nullptr) {
  bool const factors_alone = has_factors_alone(g);
  double const costs[] = {
      Configs::factors_alone && !factors_alone ? unusable : sm90_cost<Configs>(g, device)...};
  constexpr abi::GemmTile tiles[] = {
      {Configs::tile_m * Configs::cluster, Configs::out_n, Configs::tile_k}...};
  int const best = choose_tile(g, tiles, costs, to);
  cudaError_t status = to.tiles != nullptr ? cudaSuccess : cudaErrorInvalidValue;
  int index = 0;
  ((index++ == best ? (void)(status = launch_sm90<Configs>(g, device, to.stream, gated)) : void()),
   ...);
  return status;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
