// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Launching an operation on the elements that stand at the same place of several tensors.
#pragma once

#include <attikos/core/rows/device.hpp>
#include <attikos/epilogue/activation_gradient.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Kernel body of a device: the lanes of a thread take a stretch of a row, `Width` neighbors at
/// once, and ask for all of it before they store the first.
template <class Op, int Width>
struct PointwiseStretch {
  static constexpr int lanes = 32, batch = Op::reads > 2 ? 2 : 4, span = lanes * Width * batch;
  Op op;
  std::int64_t size, stretches;  ///< elements of a row, and the stretches that they make

  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t index) const {
    std::int64_t const row = stretches == 1 ? index : index / stretches;
    std::int64_t const first = (index - row * stretches) * span;
    if constexpr (requires { op.takes(row); })
      if (!op.takes(row)) return;
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, lanes), [&](int lane) {
      decltype(op.template load<Width>(row, first)) parts[batch];
      std::int64_t const from = first + lane * Width;
      ATTIKOS_UNROLL_DEVICE
      for (int b = 0; b < batch; ++b)
        if (std::int64_t const j = from + b * lanes * Width; j < size)
          parts[b] = op.template load<Width>(row, j);
      auto const store = [&](auto... how) {
        ATTIKOS_UNROLL_DEVICE
        for (int b = 0; b < batch; ++b)
          if (std::int64_t const j = from + b * lanes * Width; j < size)
            op.template store<Width>(row, j, parts[b], how...);
      };
      // A choice for each element would be in the code as often as elements are, which does not
      // stay in the instruction cache.
      if constexpr (requires { op.activation; })
        visit_activation(op.activation, store);
      else
        store();
    });
  }
};

/// Elements [j, j + Width) of row `index` as they come from memory.
template <int Width, class T>
KOKKOS_INLINE_FUNCTION Loaded<T, Width> load_of_row(Rows<T const> const& rows, std::int64_t index,
                                                    std::int64_t j) {
  Loaded<T, Width> part;
  Row<T const> const row = rows(index);
  part.load(row.data + (Width > 1 ? j : j * row.stride));
  return part;
}

/// Stores the elements nearest to `values` there.
template <int Width, class T, class Acc>
KOKKOS_INLINE_FUNCTION void store_to_row(Rows<T> const& rows, std::int64_t index, std::int64_t j,
                                         Acc const (&values)[Width]) {
  Row<T> const row = rows(index);
  store_nearest(row.data + (Width > 1 ? j : j * row.stride), values);
}

/// Launches `op` on `rows` rows of `size` elements. On a device, `Op` has `reads`, the number
/// of tensors that it reads, `neighbors`, how many elements move at once at most,
/// `moves_at_once()`, whether these tensors allow that, `load<Width>(row, j)`, which gives what it
/// reads of elements [j, j + Width), and `store<Width>(row, j, read)`, which is told of
/// `activation` as a constant behind these, if `Op` has one; `takes(row)`, if it leaves rows out.
/// On a host it has `host_row(row)`.
template <class Exec, class Op>
void launch_pointwise(Exec const& exec, char const* operation, Op const& op, std::int64_t rows,
                      std::int64_t size) {
  if (rows == 0 || size == 0) return;
  if constexpr (is_host_space<Exec>) {
    launch_rows(exec, operation, op, rows, size);
  } else {
    auto const in_stretches = [&]<int Width>(std::integral_constant<int, Width>) {
      using Stretch = PointwiseStretch<Op, Width>;
      std::int64_t const stretches = (size + Stretch::span - 1) / Stretch::span;
      launch_rows(exec, operation, Stretch{op, size, stretches}, rows * stretches);
    };
    if (op.moves_at_once())
      in_stretches(std::integral_constant<int, Op::neighbors>{});
    else
      in_stretches(std::integral_constant<int, 1>{});
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
