// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What attention and its gradients share of a host's dot-product instructions: factors in tensors,
/// products of packed ones, and values that are not finite.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/attention/attention_head.hpp>
#include <attikos/core/host_isa.hpp>
#include <attikos/host/amx.hpp>
#include <attikos/host/attention_rows.hpp>
#include <attikos/host/dot_product.hpp>
#include <string>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// The largest head_dim whose blocks of keys fit a share of the last-level cache.
inline constexpr std::int64_t attention_dot_head_dim = 4096;

/// Whether flash attention and its gradients may go to dot products, on hosts that have the
/// instructions. Weight functors change weights after the exponential, where these kernels have
/// none.
template <class Exec, class T, class Functors>
inline constexpr bool uses_attention_dot =
#if defined(ATTIKOS_HOST_X86)
    is_host_space<Exec>&& std::is_same_v<T, bfloat16> && !Functors::has_weight;
#else
    false;
#endif

/// Whether a call of those goes there. Throws what host_isa() throws.
inline bool takes_attention_dot(abi::AttentionArgs const& g) {
  return host_isa() >= HostIsa::avx512_bf16 && g.head_dim <= attention_dot_head_dim &&
         g.head_dim_v <= attention_dot_head_dim;
}

/// What they use of a host's instructions that are chosen at run time, by name; empty: nothing.
template <class Exec, class T, class Functors>
std::string attention_instructions([[maybe_unused]] abi::AttentionArgs const& g) {
  if constexpr (uses_attention_dot<Exec, T, Functors>)
    return takes_attention_dot(g) ? host_isa_name(host_isa()) : "";
  return "";
}

#if defined(ATTIKOS_HOST_X86)
struct AttentionDotBlocks {
  using T = bfloat16;
  using Acc = float;
  using Kind = host::avx512::Bfloat16Pairs;
  using Words = std::uint32_t;
  using Part = host::avx512::PanelPart;
  /// Features of a pass, and keys or queries of a block: what a row of a packed left factor holds
  /// at most.
  static constexpr int most = host::avx512::most_units * Kind::values;
  static constexpr int panel = host::avx512::panel_columns;
  static constexpr int row_words = host::avx512::row_words;
  static constexpr int tile_rows = host::amx::tile_rows;

  static host::avx512::Factor<std::uint16_t> factor(T const* data, std::int64_t neighbor_stride,
                                                    std::int64_t k_stride) {
    return {reinterpret_cast<std::uint16_t const*>(data), neighbor_stride, k_stride};
  }

  /// Words of `count` neighbors as right factor, `k` values of each.
  static std::int64_t right_words(std::int64_t count, std::int64_t k) {
    return round_up<std::int64_t>(count, panel) * round_up<std::int64_t>(k, 32) / Kind::values;
  }
  /// Words from a panel to the next in the pass that begins at feature p of d.
  static std::int64_t pass_panel(int p, int d) {
    return host::avx512::panel_words<Kind>(d - p < most ? d - p : most);
  }

  /// Packs `count` rows of d features as the right factor of products over the features, one pass
  /// behind the other, each of which has room for `room` rows.
  static void pack_rows_right(Words* to, Block<T const> const& x, int count, int d, int room) {
    for (int p = 0; p < d; p += most) {
      host::avx512::pack_right<Kind>(to, factor(x.at(0, p), x.row_stride, x.col_stride),
                                     d - p < most ? d - p : most, count);
      to += pass_panel(p, d) * (room / panel);
    }
  }

  /// Packs `count` rows of d features as the right factor of products over the rows; whether they
  /// are finite. Those that are not get 0; see add_not_finite().
  static bool pack_features_right(Words* to, Block<T const> const& x, int count, int d) {
    host::avx512::pack_right<Kind>(to, factor(x.data, x.col_stride, x.row_stride), count, d);
    return !host::avx512::clear_not_finite(to, host::avx512::panel_words<Kind>(count) / panel *
                                                   round_up(d, host::avx512::vector_columns));
  }

  /// sums (+)= left · right; `tiles` is null where vectors multiply.
  static void multiply(host::amx::Tiles* tiles, Words const* left, Words const* right, Acc* sums,
                       int ld, int rows, int cols, int k, bool accumulate, Part const& part) {
    if (tiles != nullptr)
      host::amx::multiply<Kind>(*tiles, left, right, sums, ld, rows, cols, k, accumulate, part);
    else
      host::avx512::multiply<Kind>(left, right, sums, ld, rows, cols, k, accumulate, part);
  }

  /// out += factor·x of entries of x, `count` rows of d from `row(j)` on, that are infinite or NaN,
  /// where the factor of row j of the left factor's rows is not 0. What they make of a sum does not
  /// depend on the order.
  template <class Row>
  static void add_not_finite(Words const* left, int rows, Row const& row, int count,
                             std::int64_t stride, int d, Acc* out, int ld) {
    for (int j = 0; j < count; ++j) {
      T const* const x = row(j);
      for (int c = 0; c < d; ++c) {
        Acc const v = static_cast<Acc>(x[c * stride]);
        if (v - v == Acc(0)) continue;
        for (int i = 0; i < rows; ++i) {
          Acc const w =
              static_cast<Acc>(reinterpret_cast<T const*>(left + std::int64_t{i} * row_words)[j]);
          if (w != Acc(0)) out[std::int64_t{i} * ld + c] += w * v;
        }
      }
    }
  }
};
#endif

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
