// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// rope() on a device where pairs are half a head apart and neighbors move at
/// once: a thread rotates neighbors in one half of a head with those in the other.
#pragma once

#include <attikos/core/rows/device.hpp>
#include <attikos/norm/rotation.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// What becomes of features i, … and i + dim/2, … of a head; `first` and `second` hold them.
template <class Acc, int Width, class Table>
KOKKOS_INLINE_FUNCTION void rotate_neighbors(Rotation<Table> const& rotation, std::int64_t row,
                                             std::int64_t i, Acc (&first)[Width],
                                             Acc (&second)[Width]) {
  Acc cos_a[Width], sin_a[Width], cos_b[Width], sin_b[Width];
  load_neighbors(rotation.cos.ptr(row, i), cos_a);
  load_neighbors(rotation.sin.ptr(row, i), sin_a);
  if (rotation.half_width) {
    for (int l = 0; l < Width; ++l) cos_b[l] = cos_a[l], sin_b[l] = sin_a[l];
  } else {
    load_neighbors(rotation.cos.ptr(row, i + rotation.dim() / 2), cos_b);
    load_neighbors(rotation.sin.ptr(row, i + rotation.dim() / 2), sin_b);
  }
  for (int l = 0; l < Width; ++l) {
    Acc const to_a = rotation.transposed ? sin_b[l] : -sin_a[l];
    Acc const to_b = rotation.transposed ? -sin_a[l] : sin_b[l];
    Acc const a = first[l], b = second[l];
    first[l] = a * cos_a[l] + b * to_a;
    second[l] = b * cos_b[l] + a * to_b;
  }
}

template <class Out, class Acc, int Width>
KOKKOS_INLINE_FUNCTION void store_rounded(Out* to, Acc const (&values)[Width]) {
  Out elements[Width];
  for (int l = 0; l < Width; ++l) elements[l] = nearest_element<Out>(values[l]);
  store_neighbors(to, elements);
}

/// Whether threads may rotate `Width` neighbors of whole heads at once.
template <int Width, class Table>
bool rotates_neighbors(Rotation<Table> const& rotation, std::int64_t head_dim) {
  auto const table = [](TensorRef<Table const, 2> const& t) {
    return moves_at_once<Width>(t.data, t.stride[1]) &&
           (t.extent[0] <= 1 || t.stride[0] % Width == 0);
  };
  return !rotation.interleaved && rotation.dim() == head_dim && head_dim % (2 * Width) == 0 &&
         table(rotation.cos) && table(rotation.sin);
}

/// One thread's part of rope(): neighbors of both halves of one head.
template <class Acc, class X, class Table, class Out, int Width>
struct RopeNeighbors {
  TensorRef<X const, 4> x;
  TensorRef<Out, 4> out;
  Rotation<Table> rotation;
  bool heads_inside;  ///< threads run over heads of a token, else over tokens of a head

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t index) const {
    // Fewer than 2³², so that divisions are short.
    auto const rest = static_cast<std::uint32_t>(index);
    auto const half = static_cast<std::uint32_t>(x.extent[3] / 2);
    std::uint32_t const parts = half / Width, row = rest / parts;
    std::int64_t const i = std::int64_t{rest % parts} * Width;
    auto const inner = static_cast<std::uint32_t>(heads_inside ? x.extent[1] : x.extent[2]);
    auto const outer = static_cast<std::uint32_t>(heads_inside ? x.extent[2] : x.extent[1]);
    std::uint32_t const in = row % inner, over = row / inner % outer, b = row / inner / outer;
    std::uint32_t const h = heads_inside ? in : over, s = heads_inside ? over : in;
    Acc first[Width], second[Width];
    load_neighbors(x.ptr(b, h, s, i), first);
    load_neighbors(x.ptr(b, h, s, i + half), second);
    rotate_neighbors(rotation, rotation.row(b, s), i, first, second);
    store_rounded(out.ptr(b, h, s, i), first);
    store_rounded(out.ptr(b, h, s, i + half), second);
  }
};

/// Launches rope() this way if the arguments allow it; says whether.
template <class Acc, class Exec, class X, class Table, class Out>
bool rope_neighbors(Exec const& exec, char const* operation, TensorRef<X const, 4> const& x,
                    TensorRef<Out, 4> const& out, Rotation<Table> const& rotation,
                    bool heads_inside) {
  constexpr int width = neighbors<X, Out>;
  auto const moves = [](auto const& t) {
    bool whole = moves_at_once<width>(t.data, t.stride[3]);
    for (int r = 0; r < 3; ++r) whole = whole && (t.extent[r] <= 1 || t.stride[r] % width == 0);
    return whole;
  };
  std::int64_t const threads = x.size() / (2 * width);
  if (!rotates_neighbors<width>(rotation, x.extent[3]) || !moves(x) || !moves(out) ||
      threads > std::numeric_limits<std::uint32_t>::max())
    return false;
  launch(operation, "portable", range_policy(exec, threads),
         RopeNeighbors<Acc, X, Table, Out, width>{x, out, rotation, heads_inside});
  return true;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
