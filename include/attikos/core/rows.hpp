// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Launching an operation that treats every row (the last dimension) of a tensor by itself.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/launch.hpp>
#include <attikos/core/row.hpp>
#include <attikos/core/to_abi.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// One row in memory: pointer, stride, length.
template <class T>
struct Row {
  T* data;
  std::int64_t stride;
  std::int64_t size;
  KOKKOS_INLINE_FUNCTION T& operator[](std::int64_t j) const { return data[j * stride]; }
};

/// A tensor of rank 1 to 3 as a list of rows.
template <class T>
struct Rows {
  T* data;
  std::int64_t outer, inner, size;
  std::int64_t outer_stride, inner_stride, stride;

  KOKKOS_INLINE_FUNCTION std::int64_t count() const { return outer * inner; }
  KOKKOS_INLINE_FUNCTION Row<T> operator()(std::int64_t index) const {
    return {data + index / inner * outer_stride + index % inner * inner_stride, stride, size};
  }
};

template <class T, int Rank>
Rows<T> rows_of(TensorRef<T, Rank> const& x) {
  static_assert(Rank >= 1 && Rank <= 3, "attikos: row operations take tensors of rank 1, 2 or 3");
  Rows<T> rows{x.data, 1, 1, x.extent[Rank - 1], 0, 0, x.stride[Rank - 1]};
  if constexpr (Rank >= 2) {
    rows.inner = x.extent[Rank - 2];
    rows.inner_stride = x.stride[Rank - 2];
  }
  if constexpr (Rank == 3) {
    rows.outer = x.extent[0];
    rows.outer_stride = x.stride[0];
  }
  return rows;
}

/// Kernel body: a team takes a run of rows, a thread one row after another, its lanes the elements.
/// `Op` has `host_row(index)` and `device_row(team, index)`; the first is never compiled for a
/// device.
template <class Exec, class Op, int Lanes>
struct RowKernel {
  using Policy = Kokkos::TeamPolicy<Exec>;
  using Team = typename Policy::member_type;
  static constexpr int lanes = is_host_space<Exec> ? 1 : Lanes;
  static constexpr int rows_per_team = is_host_space<Exec> ? 16 : 256 / Lanes;

  Op op;
  std::int64_t rows;

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    std::int64_t const first = std::int64_t{team.league_rank()} * rows_per_team;
    int const count = static_cast<int>(rows - first < rows_per_team ? rows - first : rows_per_team);
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count), [&](int r) {
      if constexpr (is_host_space<Exec>) {
        KOKKOS_IF_ON_HOST((op.host_row(first + r);))
      } else {
        op.device_row(team, first + r);
      }
    });
  }
};

/// `Lanes`: of a device, which share a row.
template <int Lanes = 32, class Exec, class Op>
void launch_rows(Exec const& exec, char const* operation, Op const& op, std::int64_t rows) {
  using Kernel = RowKernel<Exec, Op, Lanes>;
  if (rows == 0) return;
  constexpr bool host = is_host_space<Exec>;
  launch(operation, "portable",
         typename Kernel::Policy(
             exec,
             checked_league(operation, (rows + Kernel::rows_per_team - 1) / Kernel::rows_per_team),
             host ? 1 : Kernel::rows_per_team, Kernel::lanes),
         Kernel{op, rows});
}

/// Sum of f(x[j]) over a row by the lanes of one device thread.
template <class Acc, class Team, class T, class F>
KOKKOS_INLINE_FUNCTION Acc device_sum(Team const& team, Row<T> const& x, F const& f) {
  Acc total = 0;
  Kokkos::parallel_reduce(
      Kokkos::ThreadVectorRange(team, x.size),
      [&](std::int64_t j, Acc& part) { part += f(static_cast<Acc>(x[j])); }, total);
  return total;
}

/// Input and output of a row operation agree in shape; throws ShapeError otherwise.
template <class X, class Out, int Rank>
void check_same_extents(char const* operation, TensorRef<X, Rank> const& x,
                        TensorRef<Out, Rank> const& out) {
  for (int r = 0; r < Rank; ++r)
    if (x.extent[r] != out.extent[r])
      raise<ShapeError>(operation, ": out is ", describe(out),
                        "; expected the extents of x, which is ", describe(x));
}

/// A vector along the last dimension, such as a weight; throws ShapeError if its length differs
/// from the row's.
template <class X, class W, int Rank>
void check_row_vector(char const* operation, char const* name, TensorRef<X, Rank> const& x,
                      TensorRef<W, 1> const& vector) {
  if (vector.extent[0] != x.extent[Rank - 1])
    raise<ShapeError>(operation, ": ", name, " has ", vector.extent[0], " elements; expected ",
                      x.extent[Rank - 1], ", the last extent of x, which is ", describe(x));
}

/// Types and signs of extents, which all row operations check alike.
template <ExecutionSpace Exec, TensorLike X, TensorLike Out>
void check_row_operation(char const* operation, X const& x, Out const& out) {
  check_tensor<Exec, X>();
  check_output<Exec>(out);
  check_extents(operation, "x", x);
  check_extents(operation, "out", out);
  static_assert(rank_of<X> == rank_of<Out>, "attikos: x and out have one rank");
  static_assert(is_floating_element<element_t<X>> && is_floating_element<element_t<Out>>,
                "attikos: x and out hold floating-point elements");
}

/// Accumulator of a row operation: double if input or output is.
template <class X, class Out>
using RowAccumulator =
    std::conditional_t<std::is_same_v<X, double> || std::is_same_v<Out, double>, double, float>;

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
