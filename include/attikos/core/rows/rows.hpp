// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Launching an operation that treats every row (the last dimension) of a tensor by itself.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/core/dispatch/to_abi.hpp>
#include <attikos/core/extras.hpp>
#include <attikos/core/launch.hpp>
#include <attikos/core/rows/row.hpp>
#include <attikos/core/run_here.hpp>

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
  /// The row after this one, to be fetched early.
  T* next(std::int64_t index) const {
    return (*this)(index + 1 < count() ? index + 1 : index).data;
  }
  /// Whether a host stores these rows past the caches, `from` being what they are computed from.
  bool past_caches(void const* from) const {
    return from != data &&
           host::goes_past_caches(count() * size * static_cast<std::int64_t>(sizeof(T)));
  }
  KOKKOS_INLINE_FUNCTION Row<T> operator()(std::int64_t index) const {
    if (outer == 1) return {data + index * inner_stride, stride, size};
    return {data + index / inner * outer_stride + index % inner * inner_stride, stride, size};
  }
};

/// The same rows, numbered without a division where they lie at one distance.
template <class T>
Rows<T> flattened(Rows<T> rows) {
  if (rows.inner == 1) rows.inner_stride = rows.outer_stride;
  if (rows.inner == 1 || rows.outer_stride == rows.inner * rows.inner_stride) {
    rows.inner *= rows.outer;
    rows.outer = 1;
  }
  return rows;
}

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
    return flattened(rows);
  }
  return rows;
}

/// One number of each row as a list of rows of size 1, numbered as the rows are.
template <class T, int Rank>
Rows<T> values_of_rows(TensorRef<T, Rank> const& x) {
  TensorRef<T, Rank + 1> ref{};
  ref.data = x.data;
  for (int r = 0; r < Rank; ++r) {
    ref.extent[r] = x.extent[r];
    ref.stride[r] = x.stride[r];
  }
  ref.extent[Rank] = ref.stride[Rank] = 1;
  return rows_of(ref);
}

/// Whether the elements of a vector along the rows lie side by side; one that is absent does not
/// matter.
template <class T>
bool unit_stride(TensorRef<T, 1> const& vector) {
  return vector.stride[0] == 1;
}
inline bool unit_stride(Absent) { return true; }

/// The rows behind row `index` of tensors.
template <class... T>
host::Ahead<std::remove_const_t<T>...> ahead_of(std::int64_t index, Rows<T> const&... x) {
  return {{x.next(index)...}};
}

template <class Acc, bool Dense, class T>
host::RowReader<Acc, Dense, std::remove_const_t<T>> row_reader(TensorRef<T, 1> const& vector) {
  return {vector.data, vector.stride[0]};
}

/// Kernel body of a device: a team takes a run of rows, a thread one row after another, its lanes
/// the elements. `Op` has `host_row(index)` and `device_row(team, index)`; the first is never
/// compiled for a device.
template <class Exec, class Op, int Lanes>
struct RowKernel {
  using Policy = Kokkos::TeamPolicy<Exec>;
  using Team = typename Policy::member_type;
  static constexpr int rows_per_team = 256 / Lanes;

  Op op;
  std::int64_t rows;

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    std::int64_t const first = std::int64_t{team.league_rank()} * rows_per_team;
    int const count = static_cast<int>(rows - first < rows_per_team ? rows - first : rows_per_team);
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count),
                         [&](int r) { op.device_row(team, first + r); });
  }
};

/// Kernel body of a host: a thread takes a block of rows, without the cost of a team.
template <class Op>
struct RowBlocks {
  Op op;
  std::int64_t rows, per_block;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t block) const {
    KOKKOS_IF_ON_HOST((run(block);))
  }
  void run(std::int64_t block) const {
    std::int64_t const first = block * per_block;
    std::int64_t const last = first + per_block < rows ? first + per_block : rows;
    for (std::int64_t r = first; r < last; ++r) op.host_row(r);
    host::finish_stores_past_caches();
  }
};

/// Rows that a host thread takes at once: some thousands of elements, but not so many that threads
/// are left without any.
inline std::int64_t rows_per_block(std::int64_t rows, std::int64_t size, int threads) {
  std::int64_t const long_enough =
      std::max<std::int64_t>(8192 / std::max<std::int64_t>(size, 1), 1);
  return std::clamp<std::int64_t>(rows / (4 * std::max(threads, 1)), 1, long_enough);
}

/// `size`: elements of a row, about; 0: not known. `Lanes`: of a device, which share a row.
template <int Lanes = 32, class Exec, class Op>
void launch_rows(Exec const& exec, char const* operation, Op const& op, std::int64_t rows,
                 std::int64_t size = 0) {
  if (rows == 0) return;
  if constexpr (is_host_space<Exec>) {
    if constexpr (runs_at_once<Exec>) {
      // An element counts as ten operations.
      if (size > 0 &&
          10.0 * static_cast<double>(rows) * static_cast<double>(size) <= few_operations)
        return run_here(operation, "portable", exec, [&] { RowBlocks<Op>{op, rows, rows}.run(0); });
    }
    std::int64_t const per_block =
        rows_per_block(rows, size > 0 ? size : 256, concurrency_of(exec));
    launch(operation, "portable", range_policy(exec, (rows + per_block - 1) / per_block),
           RowBlocks<Op>{op, rows, per_block});
  } else {
    using Kernel = RowKernel<Exec, Op, Lanes>;
    launch(operation, "portable",
           typename Kernel::Policy(exec,
                                   checked_league(operation, (rows + Kernel::rows_per_team - 1) /
                                                                 Kernel::rows_per_team),
                                   Kernel::rows_per_team, Lanes),
           Kernel{op, rows});
  }
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
