// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the configurations of gemm/sm90_wgmma_* are expected to cost, and which calls go to those
/// for few rows or columns.
#pragma once

#include <algorithm>
#include <cmath>

#include "gemm/shared/product.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// How far a configuration's main loop falls short of the tensor cores' rate: narrow tiles wait for
/// shared memory, and every stage for its barrier.
template <class Config>
constexpr double main_loop_slack() {
  if (Config::tile_n <= 48) return 2.3;
  if (Config::tile_n < 128) return Config::tile_n >= 112 ? 1.25 : Config::tile_n >= 96 ? 1.3 : 1.35;
  if (Config::ping_pong && Config::tile_n > 128) return 0.96;
  if (Config::registers_a && Config::tile_n == 128) return 1.15;
  return Config::ping_pong ? 1.0 : 1.02;
}

/// Cycles of an SM that a configuration takes: rounds of tiles over the device times what a tile
/// costs. A stage takes as long as its products, or as its share of what memory has to bring: one
/// SM gets about 16.5 bytes a cycle of operands that no other block has read.
///
/// From <H200 700 W, CUDA 13.0, bfloat16 1024³ ... 8192³, 8192 × 8192 × 512, M 128, 256 and 512 of
/// N × K 14336 × 4096, 4096 × 14336 and 6144 × 4096>: ping-pong hides all epilogues but the last;
/// pairs of blocks pay from some thousand tiles on. Those with tiles of 128 × 256 read the least of
/// L2 and of shared memory for a product, but store when nobody multiplies: they pay for long sums.
/// Shared memory takes 640 cycles for the 512 of a stage's products of 128 × 128 (the operands'
/// arrival, A once, B once for each 64 rows), 832 for the 768 of 128 × 192.
template <class Config>
double sm90_cost(abi::GemmArgs const& g, abi::Device const& device) {
  double const rows =
      static_cast<double>(blocks_of(g.m, Config::tile_m * Config::cluster)) * Config::cluster;
  double const columns = static_cast<double>(blocks_of(g.n, Config::out_n));
  double const sms = std::max(1, device.sm_count);
  double const rounds = std::ceil(rows * columns * static_cast<double>(g.batch) / sms);
  double const area = Config::tile_m * Config::tile_n;
  constexpr std::int64_t bytes_a = sizeof(typename Config::A);
  constexpr bool wide = Config::tile_n == 256 && !Config::registers_a;
  std::int64_t const line = g.k * bytes_a;
  bool const pays =
      wide ? rounds > (line > 8192 ? 3 : 8) && line >= 8192 : rounds > 16 && line >= 4096;
  double const paired = !pays ? 1.03 : wide ? 0.9 : 0.98;
  double const alone =
      Config::factors_alone && rounds < 2 ? 1.08 : 1.0;  // nobody to take turns with
  double const slack = main_loop_slack<Config>() * (Config::cluster == 1 ? alone : paired);
  double const fresh = Config::tile_n / rows + Config::tile_m / columns;  // of a stage's lines
  double const main = std::max(area / 32 * slack, fresh * 128 / 16.5) *
                      static_cast<double>(blocks_of(g.k, Config::tile_k));
  double const epilogue = 1000 + area / 24;
  if (Config::ping_pong) return rounds * std::max(main, epilogue / 2) + epilogue;
  return rounds * (main + epilogue);
}

/// Rows of A for each 64-row product and blocks for each tile: those that spread the reading of A
/// most evenly over the device. Clusters cost more than they bring unless most of the device would
/// idle.
///
/// From <H200 700 W, CUDA 13.0, bfloat16 and float8, M 16, 64 and 128, N × K 14336 × 4096, 4096 ×
/// 14336, 6144 × 4096>: 56 rows for 14336, 48 for 6144, 32 or 64 for 4096.
struct SplitPlan {
  int wave_rows, splits;
  bool one_each;  ///< no multiprocessor has more than one block
};
template <class Config>
SplitPlan plan_split(abi::GemmArgs const& g, abi::Device const& device) {
  SplitPlan best{64, 1, false};
  std::int64_t const sms = std::max(1, device.sm_count), k_blocks = blocks_of(g.k, Config::tile_k);
  std::int64_t const others = blocks_of(g.n, Config::tile_n) * g.batch;
  double least = 0;
  for (int rows : {64, 56, 48, 40, 32}) {
    if ((Config::mn_a || Config::tile_n == 128) && rows != 64) break;
    std::int64_t const blocks = blocks_of(g.m, rows) * others,
                       per_sm = blocks_of(blocks, static_cast<int>(sms));
    double const cost = static_cast<double>(per_sm) * (rows + Config::tile_n / 4.0);
    if (least != 0 && cost >= least) continue;
    least = cost;
    best = {rows, 1, per_sm == 1};
  }
  std::int64_t const blocks = blocks_of(g.m, best.wave_rows) * others;
  for (int splits : {2, 4, 8}) {
    bool const fit =
        Config::tile_n == 128 ? blocks * splits <= sms : blocks * splits * 3 <= sms * 2;
    if (!fit || k_blocks < 16 * splits) break;
    best.splits = splits;
  }
  return best;
}

/// Lines of 128 bytes of each row of A that a block brings into L2 before it waits for the launch
/// before its own.
///
/// From <H200 700 W, CUDA 13.0, bfloat16 and float8, M 1, 16, 32, 64, N × K 6144 × 4096 and 4096 ×
/// 14336>: launches back to back in a graph take 0.3 ... 0.8 µs less, behind another kernel 0 ...
/// 0.3 less; 4 lines gain two thirds of that, 16 no more, 24 less. Where two blocks share a
/// multiprocessor (14336 × 4096), 8 lines cost up to 0.9 behind another kernel.
constexpr int lead_lines = 8;

/// Whether clusters of four blocks share out K of tiles of 128 × 144: a tile has places for all
/// rows, K is long, and there are as many columns as nearly fill the device; not every
/// multiprocessor finds three others for a cluster.
///
/// From <H200 700 W, CUDA 13.0, 128 × 4096 × 14336>: 1.14 (bfloat16) and 1.18 (float8) times as
/// fast as tiles of 64 × 128 by two blocks.
inline bool takes_parts(abi::GemmArgs const& g, abi::Device const& device) {
  bool const bytes = dtype_size(g.type_a) == 1;
  if (bytes && (g.type_a != DType::float8_e4m3 || g.type_b != DType::float8_e4m3 ||
                g.accumulate == abi::Accumulate::promoted || along_blocks(g.scale_a, true) ||
                along_blocks(g.scale_b, false)))
    return false;
  std::int64_t const blocks = 4 * blocks_of(g.n, 144) * g.batch, sms = device.sm_count;
  return g.m > 64 && g.m <= 128 && blocks * 2 >= sms && blocks * 10 <= sms * 9 &&
         g.k * (bytes ? 1 : 2) >= 12288 && major_a(g) == Major::k && major_b(g) == Major::k &&
         g.c_n == 1;
}

/// Whether reading the longer operand bounds the time, so that the kernel for few tiles takes the
/// call: up to 64 rows or columns always, up to 128 where two blocks can share out K of every 64
/// lines of the longer one.
inline bool few_columns(abi::GemmArgs const& g, abi::Device const& device) {
  if (takes_parts(g, device)) return false;
  std::int64_t const fewer = std::min(g.m, g.n), more = std::max(g.m, g.n);
  return fewer <= 64 || (fewer <= 128 && blocks_of(more, 64) * g.batch * 2 <= device.sm_count);
}

/// The product as the kernels want it: an 8-bit operand whose unit stride is not along K first,
/// fewer columns than rows where there are few, else C's unit stride along n.
inline bool is_transposed(abi::GemmArgs const& g, abi::Device const& device) {
  bool const bytes = dtype_size(g.type_a) == 1;
  if (bytes && major_b(g) == Major::mn) return true;
  if (bytes && major_a(g) == Major::mn) return false;
  return few_columns(g, device) ? g.m < g.n : g.c_n != 1 && g.c_m == 1;
}
inline abi::GemmArgs oriented(abi::GemmArgs const& g, abi::Device const& device) {
  return is_transposed(g, device) ? transposed(g) : g;
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
