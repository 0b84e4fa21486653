// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Rotation of pairs of features by a row of the cosine and sine tables; the checks of the tables.
#pragma once

#include <attikos/core/positions.hpp>
#include <attikos/core/rows/rows.hpp>
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

/// `count` ≤ W/2 elements at a stride, each in two neighboring lanes; missing lanes are 0.
template <class Acc, class T>
inline Vec<Acc> load_twice(T const* p, std::int64_t stride, int count) {
  constexpr int W = lanes<Acc>;
  Vec<Acc> v{};
  if (stride == 1 && count == W / 2) {
    Vec<Acc, W / 2> const part = load<Acc, W / 2>(p);
    std::memcpy(&v, &part, sizeof part);
  } else {
    v = load_partial<Acc, W>(p, stride, count, Acc(0));
  }
  return interleave<false, Acc, W>(v, v);
}

}  // namespace host

/// Checked cosine and sine tables, [positions, rotary_dim] or (`half_width`) [positions,
/// rotary_dim/2] each, and how they are to be used.
///
/// A pair (a, b) of features (i, j) becomes (a·cos_i − b·sin_i, b·cos_j + a·sin_j); `transposed`
/// applies the transpose of that map, (a·cos_i + b·sin_j, b·cos_j − a·sin_i). The two halves of a
/// table of full width need not agree; in one of half width both features of a pair have one entry.
template <class Table>
struct Rotation {
  TensorRef<Table const, 2> cos, sin;
  PositionsRef positions;
  std::int64_t offset;
  bool interleaved, transposed, half_width;

  KOKKOS_INLINE_FUNCTION std::int64_t dim() const {
    return half_width ? 2 * cos.extent[1] : cos.extent[1];
  }

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
    std::int64_t const at_a = half_width ? i : first, at_b = half_width ? i : second;
    Acc const a = load(first), b = load(second);
    Acc const sin_a = static_cast<Acc>(sin(row, at_a)), sin_b = static_cast<Acc>(sin(row, at_b));
    Acc const to_a = transposed ? sin_b : -sin_a, to_b = transposed ? -sin_a : sin_b;
    return {first, second, a * static_cast<Acc>(cos(row, at_a)) + b * to_a,
            b * static_cast<Acc>(cos(row, at_b)) + a * to_b};
  }

  /// Host only: use(j, vector, count) for every piece of a rotated head whose features from j on
  /// are load(j, count). A pair is loaded before either of its features is used.
  template <class Acc, class Load, class Use>
  void host_head(std::int64_t row, Load const& load, Use const& use) const {
    constexpr int V = host::lanes<Acc>;
    auto const table = [&](TensorRef<Table const, 2> const& t, std::int64_t j, int count) {
      return host::load_row<Acc>(t.ptr(row, j), t.stride[1], count);
    };
    // Entries of neighboring features, each of them twice where a pair has one.
    auto const pairs = [&](TensorRef<Table const, 2> const& t, std::int64_t j, int count) {
      return half_width ? host::load_twice<Acc>(t.ptr(row, j / 2), t.stride[1], count / 2)
                        : table(t, j, count);
    };
    if (interleaved) {
      host::Vec<Acc> sign{};
      for (int l = 0; l < V; ++l) sign[l] = l % 2 == 0 ? Acc(-1) : Acc(1);
      for (std::int64_t j = 0; j < dim(); j += V) {
        int const count = dim() - j < V ? static_cast<int>(dim() - j) : V;
        host::Vec<Acc> const v = load(j, count), c = pairs(cos, j, count), s = pairs(sin, j, count);
        host::Vec<Acc> const across =
            transposed ? -host::swap_neighbors<Acc, V>(v * s) : host::swap_neighbors<Acc, V>(v) * s;
        use(j, host::multiply_add<Acc, V>(v, c, across * sign), count);
      }
      return;
    }
    std::int64_t const half = dim() / 2;
    for (std::int64_t i = 0; i < half; i += V) {
      int const count = half - i < V ? static_cast<int>(half - i) : V;
      host::Vec<Acc> const a = load(i, count), b = load(i + half, count);
      host::Vec<Acc> const cos_a = table(cos, i, count), sin_a = table(sin, i, count);
      host::Vec<Acc> const cos_b = half_width ? cos_a : table(cos, i + half, count);
      host::Vec<Acc> const sin_b = half_width ? sin_a : table(sin, i + half, count);
      host::Vec<Acc> const to_a = transposed ? sin_b : -sin_a, to_b = transposed ? -sin_a : sin_b;
      use(i, host::multiply_add<Acc, V>(a, cos_a, b * to_a), count);
      use(i + half, host::multiply_add<Acc, V>(b, cos_b, a * to_b), count);
    }
  }
};

/// A table as [positions, width], checked.
inline AnyTensor table_matrix(char const* operation, char const* name, AnyTensor const& table) {
  check_extents(operation, name, table);
  if (table.rank == 2) return table;
  if (table.extent[0] != 1 || table.extent[2] != 1)
    raise<ShapeError>(operation, ": ", name, " is ", describe(table), "; expected [1, ",
                      table.extent[1], ", 1, ", table.extent[3], "]");
  AnyTensor matrix = table;
  matrix.rank = 2;
  matrix.extent[0] = table.extent[1];
  matrix.extent[1] = table.extent[3];
  matrix.stride[0] = table.stride[1];
  matrix.stride[1] = table.stride[3];
  return matrix;
}

/// What a call says of its rotation, tables and positions without their static types.
struct RotationArguments {
  AnyTensor cos, sin, positions;
  RopeStyle style = RopeStyle::half_split;
  std::int64_t rotary_dim = 0, position_offset = 0;
  bool transposed = false;
};

/// The same, checked for tokens [batch, seqlen], with tables of rank 2. A `rotary_dim` of 0 is the
/// width of the tables; one that is twice their width makes them tables of half width.
inline RotationArguments checked_rotation(char const* operation, RotationArguments const& given,
                                          std::int64_t batch, std::int64_t seqlen) {
  RotationArguments a = given;
  a.cos = table_matrix(operation, "cos", given.cos);
  a.sin = table_matrix(operation, "sin", given.sin);
  AnyTensor const& cos = a.cos;
  for (int r = 0; r < 2; ++r)
    if (a.sin.extent[r] != cos.extent[r])
      raise<ShapeError>(operation, ": sin is ", describe(a.sin),
                        "; expected the extents of cos, which is ", describe(cos));
  std::int64_t const length = cos.extent[0], width = cos.extent[1];
  if (a.rotary_dim == 0) {
    if (width % 2 != 0)
      raise<ShapeError>(operation, ": rotary_dim is ", width, "; expected an even number. cos is ",
                        describe(cos), "; tables of half width need options.rotary_dim");
  } else if (a.rotary_dim < 0 || a.rotary_dim % 2 != 0 ||
             (a.rotary_dim != width && a.rotary_dim / 2 != width)) {
    raise<ShapeError>(operation, ": options.rotary_dim is ", a.rotary_dim,
                      "; expected an even number that is the width of cos or twice that, or 0 for ",
                      "the width. cos is ", describe(cos));
  }
  auto const positions = positions_ref(operation, a.positions, batch, seqlen);
  if (a.position_offset < 0 || a.position_offset > length)
    raise<ShapeError>(operation, ": position_offset is ", a.position_offset,
                      "; expected a number in [0, ", length, "], the rows of cos, which is ",
                      describe(cos));
  bool const empty = batch == 0 || seqlen == 0;
  if (positions.data == nullptr && !empty && length - a.position_offset < seqlen)
    raise<ShapeError>(operation, ": cos has ", length, " rows; expected at least ",
                      a.position_offset + seqlen, " for position_offset ", a.position_offset,
                      " and seqlen ", seqlen, ". cos is ", describe(cos));
  if (!empty && length == 0)
    raise<ShapeError>(operation, ": cos has 0 rows; expected at least 1. cos is ", describe(cos));
  return a;
}

/// The checked rotation of tokens [batch, seqlen] by tables of type `Table`.
template <class Table>
Rotation<Table> make_rotation(char const* operation, RotationArguments const& given,
                              std::int64_t batch, std::int64_t seqlen) {
  auto const a = checked_rotation(operation, given, batch, seqlen);
  return {ref_of<Table const, 2>(a.cos),
          ref_of<Table const, 2>(a.sin),
          positions_ref(operation, a.positions, batch, seqlen),
          a.position_offset,
          a.style == RopeStyle::interleaved,
          a.transposed,
          a.rotary_dim != 0 && a.rotary_dim != a.cos.extent[1]};
}

/// A table without its static type, which is checked here.
template <ExecutionSpace Exec, TensorLike T>
AnyTensor any_table(T const& table) {
  check_tensor<Exec, T>();
  static_assert(
      rank_of<T> == 2 || rank_of<T> == 4,
      "attikos: cos and sin are [positions, rotary_dim] or [1, positions, 1, rotary_dim], "
      "with rotary_dim/2 in its place where options.rotary_dim says so");
  static_assert(is_floating_element<element_t<T>>, "attikos: cos and sin hold floating-point");
  return any_tensor(table);
}

/// The rotation that a call asks for; `extras` may hold positions(view).
template <ExecutionSpace Exec, TensorLike Cos, TensorLike Sin, class... Extras>
RotationArguments rotation_arguments(Cos const& cos, Sin const& sin, RopeStyle style,
                                     std::int64_t rotary_dim, std::int64_t position_offset,
                                     bool transposed, Extras const&... extras) {
  static_assert(std::is_same_v<element_t<Cos>, element_t<Sin>>,
                "attikos: cos and sin hold the same element type");
  return {any_table<Exec>(cos),
          any_table<Exec>(sin),
          any_positions<Exec>(extras...),
          style,
          rotary_dim,
          position_offset,
          transposed};
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
