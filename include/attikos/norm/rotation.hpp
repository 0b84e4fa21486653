// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Rotation of pairs of features by a row of the cosine and sine tables; the checks of the tables.
#pragma once

#include <attikos/core/positions.hpp>
#include <attikos/core/rows.hpp>
#include <attikos/norm/rope_options.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

namespace host {

/// Exchanges lanes 2i and 2i + 1.
template <class T, int W>
inline Vec<T, W> swap_neighbors(Vec<T, W> v) {
#if defined(__clang__)
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return __builtin_shufflevector(v, v, static_cast<int>(I ^ 1)...);
  }
  (std::make_index_sequence<static_cast<std::size_t>(W)>{});
#else
  using Index = typename BitsOf<T>::type;
  Vec<Index, W> pick{};
  for (int l = 0; l < W; ++l) pick[l] = static_cast<Index>(l ^ 1);
  return __builtin_shuffle(v, pick);
#endif
}

}  // namespace host

/// Checked cosine and sine tables, [positions, rotary_dim] each, and how they are to be used.
///
/// A pair (a, b) of features (i, j) becomes (a·cos_i − b·sin_i, b·cos_j + a·sin_j); `transposed`
/// applies the transpose of that map, (a·cos_i + b·sin_j, b·cos_j − a·sin_i). The table's two
/// halves need not agree.
template <class Table>
struct Rotation {
  TensorRef<Table const, 2> cos, sin;
  PositionsRef positions;
  std::int64_t offset;
  bool interleaved, transposed;

  KOKKOS_INLINE_FUNCTION std::int64_t dim() const { return cos.extent[1]; }

  /// Row of the tables for token s of sequence b.
  KOKKOS_INLINE_FUNCTION std::int64_t row(std::int64_t b, std::int64_t s) const {
    std::int64_t const p = positions(b, s) + offset;
    return p < 0 ? 0 : (p < cos.extent[0] ? p : cos.extent[0] - 1);
  }

  /// Two features and what they become.
  template <class Acc>
  struct Pair {
    std::int64_t first, second;
    Acc a, b;
  };

  /// Pair i < dim/2 of a head whose feature j is load(j).
  template <class Acc, class Load>
  KOKKOS_INLINE_FUNCTION Pair<Acc> pair(std::int64_t row, std::int64_t i, Load const& load) const {
    std::int64_t const first = interleaved ? 2 * i : i;
    std::int64_t const second = interleaved ? first + 1 : i + dim() / 2;
    Acc const a = load(first), b = load(second);
    Acc const sin_a = static_cast<Acc>(sin(row, first)), sin_b = static_cast<Acc>(sin(row, second));
    Acc const to_a = transposed ? sin_b : -sin_a, to_b = transposed ? -sin_a : sin_b;
    return {first, second, a * static_cast<Acc>(cos(row, first)) + b * to_a,
            b * static_cast<Acc>(cos(row, second)) + a * to_b};
  }

  /// Host only: use(j, vector, count) for every piece of a rotated head whose features from j on
  /// are load(j, count). A pair is loaded before either of its features is used.
  template <class Acc, class Load, class Use>
  void host_head(std::int64_t row, Load const& load, Use const& use) const {
    constexpr int V = host::lanes<Acc>;
    auto const table = [&](TensorRef<Table const, 2> const& t, std::int64_t j, int count) {
      return host::load_row<Acc>(t.ptr(row, j), t.stride[1], count);
    };
    if (interleaved) {
      host::Vec<Acc> sign{};
      for (int l = 0; l < V; ++l) sign[l] = l % 2 == 0 ? Acc(-1) : Acc(1);
      for (std::int64_t j = 0; j < dim(); j += V) {
        int const count = dim() - j < V ? static_cast<int>(dim() - j) : V;
        host::Vec<Acc> const v = load(j, count), c = table(cos, j, count), s = table(sin, j, count);
        host::Vec<Acc> const across =
            transposed ? -host::swap_neighbors<Acc, V>(v * s) : host::swap_neighbors<Acc, V>(v) * s;
        use(j, v * c + across * sign, count);
      }
      return;
    }
    std::int64_t const half = dim() / 2;
    for (std::int64_t i = 0; i < half; i += V) {
      int const count = half - i < V ? static_cast<int>(half - i) : V;
      host::Vec<Acc> const a = load(i, count), b = load(i + half, count);
      host::Vec<Acc> const sin_a = table(sin, i, count), sin_b = table(sin, i + half, count);
      host::Vec<Acc> const to_a = transposed ? sin_b : -sin_a, to_b = transposed ? -sin_a : sin_b;
      use(i, a * table(cos, i, count) + b * to_a, count);
      use(i + half, b * table(cos, i + half, count) + a * to_b, count);
    }
  }
};

/// A table as [positions, rotary_dim].
template <ExecutionSpace Exec, TensorLike T>
TensorRef<element_t<T> const, 2> table_ref(char const* operation, char const* name,
                                           T const& table) {
  check_tensor<Exec, T>();
  check_extents(operation, name, table);
  constexpr int rank = rank_of<T>;
  static_assert(rank == 2 || rank == 4,
                "attikos: cos and sin are [seqlen, rotary_dim] or [1, seqlen, 1, rotary_dim]");
  static_assert(is_floating_element<element_t<T>>, "attikos: cos and sin hold floating-point");
  auto const ref = to_const_ref(table);
  if constexpr (rank == 4) {
    if (ref.extent[0] != 1 || ref.extent[2] != 1)
      raise<ShapeError>(operation, ": ", name, " is ", describe(ref), "; expected [1, ",
                        ref.extent[1], ", 1, ", ref.extent[3], "]");
    return {ref.data, {ref.extent[1], ref.extent[3]}, {ref.stride[1], ref.stride[3]}};
  } else {
    return ref;
  }
}

/// Checks tables, positions and offset for tokens [batch, seqlen].
template <ExecutionSpace Exec, TensorLike Cos, TensorLike Sin, class... Extras>
Rotation<element_t<Cos>> make_rotation(char const* operation, Cos const& cos, Sin const& sin,
                                       RopeStyle style, std::int64_t position_offset,
                                       std::int64_t batch, std::int64_t seqlen, bool transposed,
                                       Extras const&... extras) {
  static_assert(std::is_same_v<element_t<Cos>, element_t<Sin>>,
                "attikos: cos and sin hold the same element type");
  auto const rc = table_ref<Exec>(operation, "cos", cos);
  auto const rs = table_ref<Exec>(operation, "sin", sin);
  for (int r = 0; r < 2; ++r)
    if (rs.extent[r] != rc.extent[r])
      raise<ShapeError>(operation, ": sin is ", describe(rs),
                        "; expected the extents of cos, which is ", describe(rc));
  std::int64_t const length = rc.extent[0];
  if (rc.extent[1] % 2 != 0)
    raise<ShapeError>(operation, ": rotary_dim is ", rc.extent[1],
                      "; expected an even number. cos is ", describe(rc));
  auto const positions = positions_ref<Exec>(operation, batch, seqlen, extras...);
  if (position_offset < 0 || position_offset > length)
    raise<ShapeError>(operation, ": position_offset is ", position_offset,
                      "; expected a number in [0, ", length, "], the rows of cos, which is ",
                      describe(rc));
  bool const empty = batch == 0 || seqlen == 0;
  if (positions.data == nullptr && !empty && length - position_offset < seqlen)
    raise<ShapeError>(operation, ": cos has ", length, " rows; expected at least ",
                      position_offset + seqlen, " for position_offset ", position_offset,
                      " and seqlen ", seqlen, ". cos is ", describe(rc));
  if (!empty && length == 0)
    raise<ShapeError>(operation, ": cos has 0 rows; expected at least 1. cos is ", describe(rc));
  return {rc, rs, positions, position_offset, style == RopeStyle::interleaved, transposed};
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
