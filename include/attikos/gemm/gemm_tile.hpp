// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// gemm_tile(): which tile a matrix product uses.
#pragma once

#include <attikos/gemm/gemm.hpp>
#include <attikos/tune/tile_config.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// The tile that gemm() would use for these arguments, with the extents that `options` leaves open
/// filled in; zeros where the call has none: another kernel takes it, the product is empty, or it
/// is one of a batch of small products. Setting what comes back gives the same bits on a host.
/// Throws what gemm() would throw.
template <ExecutionSpace Exec, detail::GemmMatrix A, detail::GemmMatrix B, detail::GemmMatrix C,
          detail::GemmExtra... Extras>
tune::TileConfig gemm_tile(Exec const& exec, A const& a, B const& b, C const& c,
                           GemmOptions const& options = {}, Extras const&... extras) {
  if (explain(op::gemm, exec, a, b, c, options, extras...).kernel != "portable") return {};
  return detail::gemm_portable_tile<detail::gemm_element_t<A>, detail::gemm_element_t<B>,
                                    detail::gemm_element_t<C>>(
      exec, detail::gemm_arguments<Exec>(a, b, c, options, extras...));
}

/// The same for an instance of the default execution space.
template <detail::GemmMatrix A, detail::GemmMatrix B, detail::GemmMatrix C,
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
