// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// gemm_tile(): which tile a matrix product uses.
#pragma once

#include <attikos/gemm/gemm.hpp>
#include <attikos/tune/tile_config.hpp>
#include <type_traits>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

namespace detail {

/// Tiles of the compiled kernel that takes a call, that which it uses first; none where the
/// portable kernel runs, or one that has no choice.
template <class A, class B, class C, ExecutionSpace Exec>
std::vector<tune::TileConfig> gemm_kernel_tiles(Exec const& exec, abi::GemmArgs const& args,
                                                char const* kernel) {
  std::vector<tune::TileConfig> list;
  choose_kernel("gemm", typename Specializations<op::Gemm, Exec, A, B, C>::kernels{}, kernel, args,
                exec, nullptr, [&]<class Kernel>(std::type_identity<Kernel>) {
                  if constexpr (requires { Kernel::tiles(args, exec); }) {
                    abi::GemmTiles const tiles = Kernel::tiles(args, exec);
                    for (int i = 0; i < tiles.count; ++i)
                      list.push_back({tiles.tile[i].m, tiles.tile[i].n, tiles.tile[i].k});
                  }
                });
  return list;
}

}  // namespace detail

/// The tile that gemm() would use for these arguments, with the extents that `options` leaves open
/// filled in; zeros where the call has none: the product is empty, one of a batch of small
/// products, or of a kernel that has one tile only. Rows of a compiled kernel's tile are those of
/// all blocks of a cluster. Setting what comes back gives the same bits.
/// Throws what gemm() would throw.
template <ExecutionSpace Exec, detail::GemmMatrix A, detail::GemmRight B, detail::GemmMatrix C,
          detail::GemmExtra... Extras>
tune::TileConfig gemm_tile(Exec const& exec, A const& a, B const& b, C const& c,
                           GemmOptions const& options = {}, Extras const&... extras) {
  using TA = detail::gemm_element_t<A>;
  using TB = detail::gemm_element_t<B>;
  using TC = detail::gemm_element_t<C>;
  bool const portable = explain(op::gemm, exec, a, b, c, options, extras...).kernel == "portable";
  auto const args = detail::gemm_arguments(detail::gemm_tensors<Exec>(a, b, c, extras...), options);
  if (portable) return detail::gemm_portable_tile<TA, TB, TC>(exec, args);
  auto const tiles = detail::gemm_kernel_tiles<TA, TB, TC>(exec, args, options.kernel);
  return tiles.empty() ? tune::TileConfig{} : tiles.front();
}

/// The same for an instance of the default execution space.
template <detail::GemmMatrix A, detail::GemmRight B, detail::GemmMatrix C,
          detail::GemmExtra... Extras>
tune::TileConfig gemm_tile(A const& a, B const& b, C const& c, GemmOptions const& options = {},
                           Extras const&... extras) {
  return gemm_tile(Kokkos::DefaultExecutionSpace{}, a, b, c, options, extras...);
}

/// The options with this tile.
inline GemmOptions with_tile(GemmOptions options, tune::TileConfig const& tile) {
  options.tile_m = tile.tile_m;
  options.tile_n = tile.tile_n;
  options.tile_k = tile.tile_k;
  return options;
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
