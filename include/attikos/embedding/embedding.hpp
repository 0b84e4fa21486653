// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// embedding(): the rows of a table that ids name.
#pragma once

#include <attikos/embedding/embedding_arguments.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class Number, class T, class Id, class Out>
struct EmbeddingRow {
  using Acc = Number;

  Rows<T const> table;
  Rows<Id const> ids;
  Rows<Out> out;

  /// The row of the table, −1 where an id is outside.
  KOKKOS_INLINE_FUNCTION std::int64_t source(std::int64_t index) const {
    auto const id = static_cast<std::int64_t>(*ids(index).data);
    return id >= 0 && id < table.count() ? id : -1;
  }

  void host_row(std::int64_t index) const {
    Row<Out> const to = out(index);
    std::int64_t const from = source(index);
    std::int64_t const after = index + 1 < out.count() ? source(index + 1) : -1;
    bool const past = out.past_caches(table.data);
    host::with_dense(table.stride == 1 && to.stride == 1, [&](auto dense) {
      constexpr int V = host::lanes<Acc>;
      host::Ahead<T> const ahead{{after < 0 ? table.data : table(after).data}};
      auto const write = [&](auto const& f) __attribute__((always_inline)) {
        host::write_row<Acc, dense()>(to.data, to.stride, to.size, past, ahead, f);
      };
      if (from < 0) {
        write([](std::int64_t, int) __attribute__((always_inline)) {
          return host::broadcast<Acc, V>(Kokkos::Experimental::quiet_NaN_v<Acc>);
        });
        return;
      }
      host::RowReader<Acc, dense(), T> const read{table(from).data, table.stride};
      write([&](std::int64_t j, int count)
                __attribute__((always_inline)) { return read(j, count); });
    });
  }
};

/// The same on a device: a thread's lanes copy a row, `Width` neighbors at once, and ask for
/// several pieces before they store the first.
template <class Op, int Width>
struct EmbeddingDeviceRow {
  static constexpr int lanes = 32, batch = 4;
  Op op;

  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t index) const {
    using Acc = typename Op::Acc;
    auto const to = device_row_of(op.out, index);
    std::int64_t const from = op.source(index);
    auto const* const data = op.table.data + (from < 0 ? 0 : from) * op.table.inner_stride;
    std::int64_t const chunks = to.size / Width, stride = op.table.stride;
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, lanes), [&](int lane) {
      for (std::int64_t first = lane; first < chunks; first += lanes * batch) {
        Acc values[batch][Width];
        for (int b = 0; b < batch; ++b) {
          std::int64_t const chunk = first + b * lanes;
          for (int i = 0; i < Width; ++i) values[b][i] = Kokkos::Experimental::quiet_NaN_v<Acc>;
          if (from >= 0 && chunk < chunks)
            load_neighbors<Acc, Width>(data + (Width > 1 ? chunk * Width : chunk * stride),
                                       values[b]);
        }
        for (int b = 0; b < batch; ++b) {
          std::int64_t const chunk = first + b * lanes;
          if (chunk < chunks) store_values<Width>(to, chunk, values[b]);
        }
      }
    });
  }
};

}  // namespace detail

/// Rows of a table: out_i = table_(ids_i).
///
/// \param exec   execution space instance; the call is asynchronous on it and never fences
/// \param table  [rows, width]
/// \param ids    rank 1 or 2, int32 or int64
/// \param out    the extents of ids and width
///
/// Ids are read where they lie and cannot be checked beforehand without waiting for the device: of
/// one that is not in [0, rows) the row of out is NaN, and nothing is read for it. Types: any
/// floating-point element for table and out, apart; one rounding where out is the narrower.
/// Determinism: run to run, and for any number of host threads. Throws ShapeError, StrideError,
/// Error before launching.
template <ExecutionSpace Exec, TensorLike Table, TensorLike Ids, TensorLike Out>
void embedding(Exec const& exec, Table const& table, Ids const& ids, Out const& out) {
  char const* const name = "embedding";
  using T = element_t<Table>;
  using To = element_t<Out>;
  using Acc = detail::RowAccumulator<T, To>;
  detail::check_tensor<Exec, Table>();
  detail::check_output<Exec>(out);
  detail::check_embedding<Exec>(name, "table", table, ids, "out", out);
  detail::check_outputs(name, {{"out", detail::any_tensor(out)}},
                        {{"table", detail::any_tensor(table)}, {"ids", detail::any_tensor(ids)}});
  using Op = detail::EmbeddingRow<Acc, T, element_t<Ids>, To>;
  Op const op{detail::rows_of(detail::to_const_ref(table)),
              detail::values_of_rows(detail::to_const_ref(ids)),
              detail::rows_of(detail::to_ref(out))};
  std::int64_t const rows = op.out.count(), width = op.out.size;
  if (rows == 0 || width == 0) return;
  if constexpr (is_host_space<Exec>) {
    detail::launch_rows(exec, name, op, rows, width);
  } else {
    detail::check_row_counts(name, rows, width);
    constexpr int wide = detail::neighbors<T, To>;
    if (detail::rows_move_at_once<wide>(op.table) && detail::rows_move_at_once<wide>(op.out))
      detail::launch_rows(exec, name, detail::EmbeddingDeviceRow<Op, wide>{op}, rows, width);
    else
      detail::launch_rows(exec, name, detail::EmbeddingDeviceRow<Op, 1>{op}, rows, width);
  }
}

/// The same on an instance of the default execution space.
template <TensorLike Table, TensorLike Ids, TensorLike Out>
void embedding(Table const& table, Ids const& ids, Out const& out) {
  embedding(Kokkos::DefaultExecutionSpace{}, table, ids, out);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
