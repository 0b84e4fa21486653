// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Paged caches: the wrapper that carries a page table and the check that reads it.
///
/// W. Kwon et al., "Efficient Memory Management for Large Language Model Serving with
/// PagedAttention", arXiv:2309.06180.
#pragma once

#include <attikos/core/dispatch/to_abi.hpp>
#include <attikos/core/extras.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Where the positions of each sequence lie in a paged cache. See paged().
template <TensorLike Table>
struct Paged {
  Table table;
  std::int64_t page_size;
};

/// A paged cache: keys [num_pages, heads_kv, page_size, head_dim], values likewise with head_dim_v.
/// Position j of sequence b is row j mod page_size of page table(b, j div page_size). `table` is
/// int32 [batch, max_pages] and lies where kernels reach it; any page size from 1 on. Sequences may
/// share pages that are only read. Kernels read no entry past a sequence's length and clamp what
/// they read to [0, num_pages).
template <TensorLike Table>
Paged<Table> paged(Table const& table, std::int64_t page_size) {
  return {table, page_size};
}

namespace detail {

/// A page table without its static type.
template <ExecutionSpace Exec, TensorLike Table>
AnyTensor any_page_table(Table const& table) {
  check_tensor<Exec, Table>();
  static_assert(std::is_same_v<element_t<Table>, std::int32_t>,
                "attikos: a page table holds int32_t");
  static_assert(rank_of<Table> == 2, "attikos: a page table has rank 2 [batch, max_pages]");
  return any_tensor(table);
}

/// A checked page table as pointer and strides. `num_pages` and `rows` are dimensions 0 and 2 of
/// the cache, which messages call `cache`.
inline TensorRef<std::int32_t const, 2> page_table_ref(char const* operation,
                                                       AnyTensor const& table,
                                                       std::int64_t page_size, std::int64_t batch,
                                                       char const* cache, std::int64_t num_pages,
                                                       std::int64_t rows) {
  check_extents(operation, "page table", table);
  if (page_size < 1)
    raise<ShapeError>(operation, ": page_size is ", page_size, "; expected 1 or more");
  if (table.extent[0] != batch)
    raise<ShapeError>(operation, ": page table is ", describe(table), "; expected ", batch,
                      " rows, one per sequence of the batch");
  if (rows != page_size)
    raise<ShapeError>(operation, ": ", cache, " has pages of ", rows, " rows; expected page_size ",
                      page_size);
  TensorRef<std::int32_t const, 2> const ref{table.as<std::int32_t>(),
                                             {table.extent[0], table.extent[1]},
                                             {table.stride[0], table.stride[1]}};
  if (num_pages == 0 && ref.size() != 0)
    raise<ShapeError>(operation, ": ", cache, " has 0 pages; expected 1 or more for a page table ",
                      "of ", describe(table));
  return ref;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
