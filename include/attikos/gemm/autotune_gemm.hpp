// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// autotune_gemm(): the fastest tile of a matrix product, from a cache or by timing. Not part of
/// attikos.hpp.
#pragma once

#include <algorithm>
#include <attikos/gemm/gemm_tile.hpp>
#include <attikos/tune/autotune.hpp>
#include <string>
#include <utility>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// What the fastest tile may depend on beside extents and machine: types, which stride of A and B
/// is 1, and what a tile does beyond the product.
inline std::string gemm_tile_types(abi::GemmArgs const& g) {
  auto const order = [](std::int64_t row, std::int64_t col) {
    return col == 1 ? " by rows, " : row == 1 ? " by columns, " : " strided, ";
  };
  std::string text = dtype_name(g.type_a) + std::string(order(g.a_m, g.a_k)) +
                     dtype_name(g.type_b) + order(g.b_k, g.b_n) + dtype_name(g.type_c);
  if (g.beta != 0) text += ", beta";
  if (g.activation != Activation::none) text += std::string(", ") + activation_name(g.activation);
  if (g.custom_epilogue) text += ", epilogue";
  if (g.bias != nullptr) text += ", bias";
  if (g.residual != nullptr) text += ", residual";
  if (g.pre_activation != nullptr) text += ", pre_activation";
  if (g.scale_a.data != nullptr || g.scale_b.data != nullptr)
    text += g.scale_a.col != 0 || g.scale_b.row != 0 ? ", scales along k" : ", scales";
  if (g.zero_point_a != nullptr || g.zero_point_b != nullptr) text += ", zero points";
  if (g.offsets != nullptr) text += ", groups " + std::to_string(g.groups);
  if (g.counts != nullptr) text += ", masked";
  if (g.accumulate == Accumulate::fast) text += ", fast";
  return text;
}

/// Tiles around the automatic one, clipped to the problem, each once.
template <class Traits>
std::vector<tune::TileConfig> gemm_tile_candidates(abi::GemmArgs const& g,
                                                   tune::TileConfig const& automatic,
                                                   bool blocked) {
  std::vector<tune::TileConfig> list{automatic};
  int const unit_m = Traits::host ? Traits::rows * 8 : 32;
  int const unit_n = Traits::host ? Traits::cols * 4 : 32;
  int const unit_k = blocked ? 64 : Traits::host ? 256 : 16;
  for (int m = 1; m <= 4; m *= 2)
    for (int n = 1; n <= 4; n *= 2)
      for (int k = 1; k <= 2; k *= 2) {
        auto const tile = used_tile<Traits>({m * unit_m, n * unit_n, k * unit_k}, g);
        if (std::find(list.begin(), list.end(), tile) == list.end()) list.push_back(tile);
      }
  return list;
}

}  // namespace detail

/// The tile with which gemm() is fastest for these arguments on this machine: from `cache`, or by
/// timing the call with each candidate. Takes what gemm() takes, and
///
/// \param cache       asked first, and given what was measured; the caller saves it
/// \param candidates  tiles to choose from, zeros in them filled in as gemm_tile() does. Without
///                    any: those of the compiled kernel that takes the call; of the portable one
///                    the automatic tile and up to 18 around it. Where the call has no tile (see
///                    gemm_tile()), zeros come back and nothing is measured, since a tile would
///                    only keep it from its kernel
///
/// Give the result to with_tile(options, tile). `options`' own tile is not looked at. Measuring
/// calls gemm() some ten times for each candidate and fences `exec`; C then holds a product of the
/// last of them, and with beta ≠ 0, or a residual that is C itself, nothing of use. With a cached
/// tile nothing is written.
///
/// Throws what gemm() throws, and ResourceError if no candidate runs. A candidate that gemm()
/// refuses is left out.
template <ExecutionSpace Exec, detail::GemmMatrix A, detail::GemmRight B, detail::GemmMatrix C,
          detail::GemmExtra... Extras>
tune::TileConfig autotune_gemm(Exec const& exec, A const& a, B const& b, C const& c,
                               GemmOptions const& options, tune::TileCache& cache,
                               std::vector<tune::TileConfig> candidates = {},
                               Extras const&... extras) {
  using TA = detail::gemm_element_t<A>;
  using TB = detail::gemm_element_t<B>;
  using TC = detail::gemm_element_t<C>;
  GemmOptions const untiled = with_tile(options, {});
  tune::TileConfig const automatic = gemm_tile(exec, a, b, c, untiled, extras...);
  auto const g = detail::gemm_arguments(detail::gemm_tensors<Exec>(a, b, c, extras...), untiled);
  std::string const kernel = explain(op::gemm, exec, a, b, c, untiled, extras...).kernel;
  bool const portable = kernel == "portable";
  if (candidates.empty()) {
    if (automatic == tune::TileConfig{}) return {};
    if (portable) {
      using Traits = detail::TileTraits<Exec, detail::GemmAccumulator<TA, TB, TC>>;
      bool const blocked = g.scale_a.col != 0 || g.scale_b.row != 0;
      if constexpr (detail::multiplies_in_fragments<Exec>) {
        if (detail::gemm_takes_fragments(g)) {
          auto const tiles = detail::gemm_fragments_tiles<TA, TB, TC>(exec, g);
          candidates.assign(tiles.begin(), tiles.end());
        }
      }
      if (candidates.empty())
        candidates = detail::gemm_tile_candidates<Traits>(g, automatic, blocked);
    } else {
      candidates = detail::gemm_kernel_tiles<TA, TB, TC>(exec, g, options.kernel);
    }
  }
  // The cache holds no zeros.
  std::vector<tune::TileConfig> whole;
  for (tune::TileConfig tile : candidates) {
    if (tile.tile_m == 0 || tile.tile_n == 0 || tile.tile_k == 0) {
      try {
        tile = gemm_tile(exec, a, b, c, with_tile(untiled, tile), extras...);
        if (tile == tune::TileConfig{}) continue;
      } catch (Error const&) {  // will be refused again below, with its reason
      }
    }
    whole.push_back(tile);
  }
  std::string types = detail::gemm_tile_types(g);
  if (!portable) types += ", " + kernel;
  auto const key = tune::make_key(exec, "gemm", std::move(types), g.batch, g.m, g.n, g.k);
  return tune::autotune(exec, cache, key, whole, [&](tune::TileConfig const& tile) {
    gemm(exec, a, b, c, with_tile(untiled, tile), extras...);
  });
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
