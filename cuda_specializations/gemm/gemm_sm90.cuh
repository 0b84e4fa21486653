// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// gemm/sm90_wgmma_*: what they accept, which configuration they take, and their launch. Each
/// element type has a translation unit of its own, which includes this.
#pragma once

#include <algorithm>

#include "../common/tensor_map.cuh"
#include "product.cuh"
#include "sm90_cost.cuh"
#include "sm90_split.cuh"
#include "sm90_wgmma.cuh"
#include "tile_choice.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

constexpr TensorMapSource operand_source(void const* data, CUtensorMapDataType type, int bytes,
                                         Major major, std::int64_t mn, std::int64_t stride_mn,
                                         std::int64_t k, std::int64_t stride_k, std::int64_t batch,
                                         std::int64_t stride_batch) {
  bool const along_k = major == Major::k;
  bool const shared = stride_batch == 0;  // one matrix for the whole batch
  return {data,
          type,
          bytes,
          along_k ? k : mn,
          along_k ? mn : k,
          shared ? 1 : batch,
          (along_k ? stride_mn : stride_k) * bytes,
          stride_batch * bytes};
}

template <class A>
TensorMapSource source_a(abi::GemmArgs const& g) {
  return operand_source(g.a, TensorMapElement<A>::map, sizeof(A), major_a(g), g.m, g.a_m, g.k,
                        g.a_k, g.batch, g.a_batch);
}
template <class B>
TensorMapSource source_b(abi::GemmArgs const& g) {
  return operand_source(g.b, TensorMapElement<B>::map, sizeof(B), major_b(g), g.n, g.b_n, g.k,
                        g.b_k, g.batch, g.b_batch);
}
inline TensorMapSource source_c(abi::GemmArgs const& g) {
  int const bytes = dtype_size(g.type_c);
  CUtensorMapDataType const type = g.type_c == DType::float16    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                   : g.type_c == DType::bfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                   : g.type_c == DType::int32    ? CU_TENSOR_MAP_DATA_TYPE_INT32
                                   : bytes == 1                  ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                                                 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  return {g.c, type, bytes, g.n, g.m, g.batch, g.c_m * bytes, g.c_batch * bytes};
}

/// Why the copy engine cannot load A or B; null if it can.
inline char const* refuse_maps(TensorMapSource const& a, TensorMapSource const& b) {
  if (char const* reason =
          refuse_tensor_map(a, "A's address is not a multiple of 16 bytes",
                            "a stride of A is not a multiple of 16 bytes", "A is too large"))
    return reason;
  return refuse_tensor_map(b, "B's address is not a multiple of 16 bytes",
                           "a stride of B is not a multiple of 16 bytes", "B is too large");
}

/// Calls `f` with the two element types of a product of float8.
template <class F>
auto with_float8(abi::GemmArgs const& g, F f) {
  using E4 = __nv_fp8_e4m3;
  using E5 = __nv_fp8_e5m2;
  bool const a5 = g.type_a == DType::float8_e5m2, b5 = g.type_b == DType::float8_e5m2;
  if (a5) return b5 ? f(E5{}, E5{}) : f(E5{}, E4{});
  return b5 ? f(E4{}, E5{}) : f(E4{}, E4{});
}

/// First reason not to take a call, whatever its element types; null if there is none.
template <class A, class B>
char const* refuse_sm90(abi::GemmArgs const& g, abi::Device const& device) {
  constexpr bool integer = std::is_same_v<A, std::int8_t>;
  if (g.type_a != TensorMapElement<A>::dtype || g.type_b != TensorMapElement<B>::dtype)
    return "it multiplies other element types";
  bool const exact = integer && g.type_c == DType::int32;
  if (!exact && !writable(g.type_c)) return "it does not write C's element type";
  if (exact && !exact_in_int32(g)) return not_exact_in_int32;
  if (char const* reason = refuse_quantized(g)) return reason;
  if (device.compute_major != 9) {
    return device.compute_major == 0 ? "no CUDA device" : "its machine code runs on sm_90 only";
  }
  abi::GemmArgs rest = g;
  rest.device_scale = nullptr, rest.pre_activation = nullptr;
  rest.tile = {};
  if (has_8_bits(g.type_c)) rest.scale_out = nullptr;
  auto const fits = [](abi::ScaleGrid const& s, bool of_a) {
    return sizeof(A) == 1 && (factors_fit(s, of_a) || (!integer && along_blocks(s, of_a)));
  };
  if (fits(g.scale_a, true)) rest.scale_a.data = nullptr;
  if (fits(g.scale_b, false)) rest.scale_b.data = nullptr;
  if (rest.scale_a.data != nullptr || rest.scale_b.data != nullptr)
    return integer ? "its scales are one for a matrix, or one for a row of A or a column of B"
                   : "its scales are constant along K, or over 128 of it";
  if (char const* reason = abi::beyond_plain_gemm(rest)) return reason;
  if (g.bias != nullptr && !readable(g.type_bias))
    return "it does not read the bias's element type";
  if (g.residual != nullptr && !readable(g.type_residual))
    return "it does not read the residual's element type";
  if (char const* reason = refuse_pre_activation(g)) return reason;
  if (g.m < 0 || g.n < 0 || g.k < 0 || g.batch < 0) return "an extent is negative";
  if (g.m == 0 || g.n == 0 || g.batch == 0) return nullptr;  // nothing is read or written
  if (char const* reason = refuse_operands(g)) return reason;
  Major const a = major_a(g), b = major_b(g);
  if (a == Major::neither) return "A has no unit stride";
  if (b == Major::neither) return "B has no unit stride";
  if (sizeof(A) == 1 && a != Major::k && b != Major::k)
    return "one of two 8-bit operands needs its unit stride along K";
  if (char const* reason = refuse_maps(source_a<A>(g), source_b<B>(g))) return reason;
  constexpr std::int64_t most = std::int64_t{1} << 30;
  if (g.m > most || g.n > most || g.k > most || g.batch > most ||
      (g.m / 32 + 1) * (g.n / 16 + 1) > most / g.batch)
    return "C is too large for one launch";
  return nullptr;
}

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
inline bool stored_plainly(abi::GemmArgs const& g) {
  Sm90Store const store = choose_store(g, goes_by_pairs(g));
  return store == Sm90Store::words ||
         (store == Sm90Store::halves &&
          (only_factors(g) || (dtype_size(g.type_a) == 1 && only_lines(g))));
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
  p.epilogue.only_lines = only_lines(g);
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
  if (Config::reads_ahead && p.store == Sm90Store::halves && p.epilogue.only_lines) {
    Sm90Epilogue& e = p.epilogue;
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
  bool const plain = stored_plainly(g);
  double const costs[] = {Configs::plain && !plain ? unusable : sm90_cost<Configs>(g, device)...};
  constexpr abi::GemmTile tiles[] = {
      {Configs::tile_m * Configs::cluster, Configs::out_n, Configs::tile_k}...};
  int const best = choose_tile(g, tiles, costs, to);
  cudaError_t status = to.tiles != nullptr ? cudaSuccess : cudaErrorInvalidValue;
  int index = 0;
  ((index++ == best ? (void)(status = launch_sm90<Configs>(g, device, to.stream, gated)) : void()),
   ...);
  return status;
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
  constexpr int half = 113 * 1024 - 2048, whole = 226 * 1024 - 2048;
  return launch_planned<
      Sm90SplitConfig<A, B, MnA, MnB, 1, Width, stages_within(half, Width, MnB, 1, Promoted), 2,
                      Promoted>,
      Sm90SplitConfig<A, B, MnA, MnB, 1, Width, stages_within(whole, Width, MnB, steps, Promoted),
                      1, Promoted, steps>>(g, device, to);
}

/// Element types of products whose tiles come in parts of K and in all widths.
template <class A, class B>
constexpr bool many_shapes = sizeof(A) == 2 ||
                             (std::is_same_v<A, __nv_fp8_e4m3> && std::is_same_v<B, __nv_fp8_e4m3>);

/// Chooses and launches for one pair of element types and one pair of layouts. The lists of
/// configurations are those that pay somewhere; sm90_cost() picks among them.
///
/// From <H200 700 W, CUDA 13.0>, times as fast as the best of the others: 128 × 192 in turns at
/// 8192 × 8192 × 512 bfloat16 1.12 (TN) and 1.09 (NT), × 4096 1.07; widths of 48 … 224 at 512 ×
/// 14336 × 4096 1.05 (bfloat16), 1.07 (float8), at 512 × 6144 × 4096 1.04 and 1.24, at 256 × 6144 ×
/// 4096 1.11 (float8). Pairs of 128 × 256 brought large 16-bit products from 0.91 … 0.94 of
/// cuBLASLt's best of ten to 0.96 and more.
template <class A, class B, bool MnA, bool MnB, bool Promoted>
cudaError_t launch_layout(abi::GemmArgs const& g, abi::Device const& device,
                          Destination const& to) {
  if constexpr (!MnA && !MnB && !Promoted && many_shapes<A, B>) {
    if (takes_parts(g, device))
      return launch_cheapest<Sm90Config<A, B, false, false, 128, 144, 1, 5, Schedule::cooperative,
                                        false, false, 2, 4>>(g, device, to);
  }
  if (g.n <= 16) return launch_few_tiles<A, B, MnA, MnB, Promoted, 16>(g, device, to);
  if (g.n <= 32) return launch_few_tiles<A, B, MnA, MnB, Promoted, 32>(g, device, to);
  // Up to 128 columns reading A bounds the time, and tiles of 128 rows are too few to do it.
  // (Promoted sums would need more registers than two blocks leave.)
  if constexpr (!Promoted) {
    if (g.n > 64 && g.n <= 128 && few_columns(g, device) &&
        blocks_of(g.m, 64) * g.batch * 3 > device.sm_count)
      return launch_few_tiles<A, B, MnA, MnB, Promoted, 128>(g, device, to);
  }
  // Tiles of 64 × 64 too, as long as every one has a place at once.
  if (g.n <= 64 || blocks_of(g.m, 64) * blocks_of(g.n, 64) * g.batch <= device.sm_count)
    return launch_few_tiles<A, B, MnA, MnB, Promoted, 64>(g, device, to);
  constexpr auto turns = Schedule::ping_pong;
  using Alone = Sm90Config<A, B, MnA, MnB, 128, 128, 1, 5, turns, false, false, 4>;
  using Wide = Sm90Config<A, B, MnA, MnB, 128, 256, 2, 4>;
  using Broad = Sm90Config<A, B, MnA, MnB, 128, 192, 1, 4, turns, false, false, 4>;
  if constexpr (Promoted) {
    constexpr auto together = Schedule::cooperative;
    using Narrow = Sm90Config<A, B, false, false, 128, 64, 1, 7, together, true>;
    using Single = Sm90Config<A, B, false, false, 128, 128, 1, 5, together, true>;
    if (along_blocks(g.scale_b, false) && factors_by_column(g.scale_b))
      return launch_cheapest<Narrow>(g, device, to);
    // Pairs are slower with factors: 0.85 against 0.90 of the rate without at 4096 x 4096 x 7168.
    if (along_blocks(g.scale_a, true) || along_blocks(g.scale_b, false))
      return launch_cheapest<Single, Narrow>(g, device, to);
    return launch_cheapest<Single, Sm90Config<A, B, false, false, 128, 128, 2, 5, together, true>,
                           Narrow>(g, device, to);
  } else if constexpr (sizeof(A) == 1 && many_shapes<A, B>) {
    return launch_cheapest<Sm90Config<A, B, MnA, MnB, 128, 128, 1, 6, turns>,
                           Sm90Config<A, B, MnA, MnB, 128, 128, 2, 6, turns>, Broad,
                           Sm90Config<A, B, MnA, MnB, 128, 64, 1, 8>,
                           Sm90Config<A, B, false, false, 128, 48, 1, 8>,
                           Sm90Config<A, B, false, false, 128, 96, 1, 6>,
                           Sm90Config<A, B, false, false, 128, 112, 1, 6>,
                           Sm90Config<A, B, false, false, 128, 192, 1, 4>,
                           Sm90Config<A, B, false, false, 128, 224, 1, 4>>(g, device, to);
  } else if constexpr (sizeof(A) == 1) {
    return launch_cheapest<Sm90Config<A, B, MnA, MnB, 128, 128, 1, 6, turns>,
                           Sm90Config<A, B, MnA, MnB, 128, 128, 2, 6, turns>,
                           Sm90Config<A, B, MnA, MnB, 128, 64, 1, 8>>(g, device, to);
  } else if constexpr (!MnA && !MnB) {
    // Widths that come out even where 128, 256 or 512 rows meet the multiprocessors of the device.
    return launch_cheapest<Alone, Wide, Broad, Sm90Config<A, B, false, false, 128, 64, 1, 8>,
                           Sm90Config<A, B, false, false, 128, 48, 1, 8>,
                           Sm90Config<A, B, false, false, 128, 96, 1, 6>,
                           Sm90Config<A, B, false, false, 128, 112, 1, 6>,
                           Sm90Config<A, B, false, false, 128, 192, 1, 4>,
                           Sm90Config<A, B, false, false, 128, 224, 1, 4>>(g, device, to);
  } else {
    return launch_cheapest<Alone, Wide, Broad, Sm90Config<A, B, MnA, MnB, 128, 64, 1, 8>>(g, device,
                                                                                          to);
  }
}

/// The same for an 8-bit A whose unit stride is along M.
template <class A, class B, bool Promoted>
cudaError_t launch_registers(abi::GemmArgs const& g, abi::Device const& device,
                             Destination const& to) {
  constexpr auto together = Schedule::cooperative;
  using Square = Sm90Config<A, B, true, false, 128, 128, 1, Promoted ? 5 : 6, together, Promoted>;
  if constexpr (std::is_same_v<A, std::int8_t>) {
    // The wide tile has to finish 8-bit elements from shared memory; along M both have to. It does
    // not store the argument of act.
    if ((has_8_bits(g.type_c) && g.c_n == 1) || g.pre_activation != nullptr)
      return launch_cheapest<Square>(g, device, to);
    return launch_cheapest<Square, Sm90Config<A, B, true, false, 128, 256, 2, 4, together>>(
        g, device, to);
  } else {  // wider tiles of float32 sums would not leave enough registers
    return launch_cheapest<Square>(g, device, to);
  }
}

template <class A, class B>
cudaError_t launch_8bit(abi::GemmArgs const& g, abi::Device const& device, Destination const& to) {
  bool const along_m = major_a(g) == Major::mn;
  if constexpr (!std::is_same_v<A, std::int8_t>) {
    if (g.accumulate == abi::Accumulate::promoted || along_blocks(g.scale_a, true) ||
        along_blocks(g.scale_b, false))
      return along_m ? launch_registers<A, B, true>(g, device, to)
                     : launch_layout<A, B, false, false, true>(g, device, to);
  }
  return along_m ? launch_registers<A, B, false>(g, device, to)
                 : launch_layout<A, B, false, false, false>(g, device, to);
}

/// Launches a call that is accepted and has elements to write, or lists its tiles.
template <class A, class B>
cudaError_t launch_product(abi::GemmArgs const& g, abi::Device const& device,
                           Destination const& to) {
  if constexpr (sizeof(A) == 1) {
    if (g.type_a == TensorMapElement<A>::dtype && g.type_b == TensorMapElement<B>::dtype)
      return launch_8bit<A, B>(g, device, to);
    return launch_8bit<B, A>(g, device, to);  // turned
  } else {
    bool const mn_a = major_a(g) == Major::mn, mn_b = major_b(g) == Major::mn;
    if (mn_a)
      return mn_b ? launch_layout<A, B, true, true, false>(g, device, to)
                  : launch_layout<A, B, true, false, false>(g, device, to);
    return mn_b ? launch_layout<A, B, false, true, false>(g, device, to)
                : launch_layout<A, B, false, false, false>(g, device, to);
  }
}

/// The tiles that a call can have, all else about which is accepted.
template <class A, class B>
abi::GemmTiles tiles_of_sm90(abi::GemmArgs const& args, abi::Device const& device) {
  abi::GemmTiles list;
  if (args.m == 0 || args.n == 0 || args.batch == 0) return list;
  launch_product<A, B>(oriented(args, device), device, {nullptr, &list});
  return is_turned(args, device) ? turned(list) : list;
}

template <class A, class B>
abi::Verdict accepts_sm90(abi::GemmArgs const& g, abi::Device const& device) {
  char const* reason = refuse_sm90<A, B>(g, device);
  if (reason == nullptr && g.tile != abi::GemmTile{} && tiles_of_sm90<A, B>(g, device).count == 0)
    reason = no_such_tile;
  return reason == nullptr ? abi::accepted() : abi::refused(reason);
}

template <class A, class B>
abi::GemmTiles list_tiles_sm90(abi::GemmArgs const& g, abi::Device const& device) {
  return refuse_sm90<A, B>(g, device) == nullptr ? tiles_of_sm90<A, B>(g, device)
                                                 : abi::GemmTiles{};
}

template <class A, class B>
int run_sm90(abi::GemmArgs const& args, abi::Device const& device, CUstream_st* stream) {
  if (!accepts_sm90<A, B>(args, device).ok) return cudaErrorInvalidValue;
  if (args.m == 0 || args.n == 0 || args.batch == 0) return cudaSuccess;
  ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  return launch_product<A, B>(oriented(args, device), device, {stream, nullptr});
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
