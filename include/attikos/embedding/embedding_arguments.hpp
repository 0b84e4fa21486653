// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Options and checks that embedding() and its gradient share.
#pragma once

#include <attikos/core/rows/checks.hpp>
#include <attikos/core/rows/device.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Options of embedding_backward().
struct EmbeddingBackwardOptions {
  std::int64_t padding_index = -1;  ///< id whose row has the gradient 0; −1: none
  double beta = 0;                  ///< factor of what dtable holds; with 0 that is not read
};

namespace detail {

/// Stores chunk `chunk` of a row, `Width` neighbors, or one element at any stride.
template <int Width, class Acc, class Out>
KOKKOS_INLINE_FUNCTION void store_values(Row<Out> const& to, std::int64_t chunk,
                                         Acc const (&values)[Width]) {
  Out elements[Width];
  for (int i = 0; i < Width; ++i) elements[i] = nearest_element<Out>(values[i]);
  store_neighbors(to.data + (Width > 1 ? chunk * Width : chunk * to.stride), elements);
}

/// Ids, a table and a row for each id fit together; throws ShapeError otherwise.
template <ExecutionSpace Exec, TensorLike Table, TensorLike Ids, TensorLike RowsOf>
void check_embedding(char const* operation, char const* table_name, Table const& table,
                     Ids const& ids, char const* name, RowsOf const& rows) {
  check_tensor<Exec, Ids>();
  static_assert(
      std::is_same_v<element_t<Ids>, std::int32_t> || std::is_same_v<element_t<Ids>, std::int64_t>,
      "attikos: ids are int32_t or int64_t");
  static_assert(rank_of<Ids> == 1 || rank_of<Ids> == 2, "attikos: ids have rank 1 or 2");
  static_assert(rank_of<Table> == 2, "attikos: a table of embeddings is [rows, width]");
  static_assert(rank_of<RowsOf> == rank_of<Ids> + 1,
                "attikos: embeddings have the dimensions of ids and one more");
  static_assert(is_floating_element<element_t<Table>> && is_floating_element<element_t<RowsOf>>,
                "attikos: embeddings hold floating-point elements");
  check_extents(operation, table_name, table);
  check_extents(operation, "ids", ids);
  check_extents(operation, name, rows);
  auto const t = any_tensor(table), i = any_tensor(ids), r = any_tensor(rows);
  bool fits = r.extent[i.rank] == t.extent[1];
  for (int d = 0; d < i.rank; ++d) fits = fits && r.extent[d] == i.extent[d];
  if (!fits)
    raise<ShapeError>(operation, ": ", name, " is ", describe(r),
                      "; expected the extents of ids, which is ", describe(i),
                      ", and the width of ", table_name, ", which is ", describe(t));
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
