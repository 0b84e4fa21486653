// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Reads a page table and says which page is none of the cache.
#pragma once

#include <attikos/attention/paged.hpp>
#include <attikos/core/launch.hpp>
#include <attikos/core/lengths.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Finds the first entry outside [0, num_pages) among those that kernels read, the pages of
/// positions before a sequence's end: its place as the value to minimize, the page beside it.
/// Entries behind the end may be anything.
template <class LengthOf>
struct FirstInvalidPage {
  using Found = Kokkos::MinLoc<std::int64_t, std::int32_t>;
  TensorRef<std::int32_t const, 2> table;
  std::int64_t page_size, num_pages;
  LengthOf length_of;
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i, typename Found::value_type& found) const {
    std::int64_t const b = i / table.extent[1], at = i % table.extent[1];
    if (at * page_size >= length_of(b)) return;
    std::int32_t const page = table(b, at);
    if ((page < 0 || page >= num_pages) && i < found.val) found = {i, page};
  }
};

/// Positions of each sequence: one number for all, or lengths.
struct LengthsInUse {
  TensorRef<std::int32_t const, 1> lengths;  ///< data null: `all` of each
  std::int64_t all;
  KOKKOS_INLINE_FUNCTION std::int64_t operator()(std::int64_t b) const {
    return lengths.data == nullptr ? all : lengths(b);
  }
};

/// Throws ShapeError naming the first page in use that is none of the cache. This reads device
/// memory: it fences `exec`. `length_of` gives each sequence's number of positions.
template <ExecutionSpace Exec, class LengthOf>
void validate_pages(Exec const& exec, AnyTensor const& given, std::int64_t page_size,
                    std::int64_t num_pages, LengthOf const& length_of) {
  using Search = FirstInvalidPage<LengthOf>;
  auto const table = page_table_ref("validate_page_table", given, page_size, given.extent[0], "k",
                                    num_pages, page_size);
  std::int64_t const entries = table.extent[0] * table.extent[1];
  auto const found =
      find_in("validate_page_table", exec, entries, Search{table, page_size, num_pages, length_of});
  if (entries > 0 && found.val < entries)
    raise<ShapeError>("validate_page_table: page table holds ", found.loc, " at [",
                      found.val / table.extent[1], ", ", found.val % table.extent[1],
                      "]; expected numbers in [0, ", num_pages, ")");
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
