// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// residual(view) of operations that treat rows: a row that is added to the one that is stored.
#pragma once

#include <attikos/core/residual.hpp>
#include <attikos/core/rows/checks.hpp>
#include <attikos/core/rows/device.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Memory of residual(view), none if it was not given; throws unless it has the extents of `like`,
/// which messages call `like_name`.
template <ExecutionSpace Exec, class Like, int Rank, class... Extras>
AnyTensor residual_memory(char const* operation, TensorRef<Like, Rank> const& like,
                          char const* like_name, Extras const&... extras) {
  auto const residual = find_extra<Residual>(extras...);
  if constexpr (is_present<decltype(residual)>) {
    using View = decltype(residual.view);
    check_tensor<Exec, View>();
    static_assert(rank_of<View> == Rank && is_floating_element<element_t<View>>,
                  "attikos::residual: it has the rank of the result and floating-point elements");
    check_extents(operation, "residual", residual.view);
    check_extents_like(operation, "residual", to_const_ref(residual.view), like_name, like);
    return any_tensor(residual.view);
  }
  return {};
}

/// The residual as rows, or Absent.
template <class... Extras>
auto residual_rows(Extras const&... extras) {
  auto const residual = find_extra<Residual>(extras...);
  if constexpr (is_present<decltype(residual)>)
    return rows_of(to_const_ref(residual.view));
  else
    return Absent{};
}

template <class T>
bool unit_stride(Rows<T> const& rows) {
  return rows.stride == 1;
}

/// Row `index` of the residual on a device.
KOKKOS_INLINE_FUNCTION Absent added_row(Absent, std::int64_t) { return {}; }
template <class R>
KOKKOS_INLINE_FUNCTION Row<R> added_row(Rows<R> const& rows, std::int64_t index) {
  return device_row_of(rows, index);
}

namespace host {

/// f·v plus elements [j, j + count) of a row of the residual. One multiply_add(), since a product
/// that is added to what was read elsewhere is rounded twice in some instantiations and not in
/// others.
template <class Acc, class Reader>
struct AddedRow {
  Reader read;
  inline __attribute__((always_inline)) Vec<Acc> operator()(Acc f, Vec<Acc> v, std::int64_t j,
                                                            int count) const {
    if constexpr (is_present<Reader>) {
      Vec<Acc> const more = read(j, count);
      return multiply_add<Acc, lanes<Acc>>(v, f, more);
    } else {
      return f * v;
    }
  }
};

template <class Acc, bool Dense>
AddedRow<Acc, Absent> added_row(Absent, std::int64_t) {
  return {};
}
template <class Acc, bool Dense, class R>
auto added_row(Rows<R const> const& rows, std::int64_t index) {
  using Reader = RowReader<Acc, Dense, R>;
  return AddedRow<Acc, Reader>{Reader{rows(index).data, rows.stride}};
}

}  // namespace host
}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
