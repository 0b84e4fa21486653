// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// validate_cu_seqlens(): reads the offsets of packed sequences and says what is wrong with them.
#pragma once

#include <attikos/attention/attention_term_arguments.hpp>
#include <attikos/core/launch.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Finds the first offset that is less than the one before it (or than 0), or more than `total`.
struct FirstInvalidOffset {
  using Found = Kokkos::MinLoc<std::int64_t, std::int64_t>;
  abi::Offsets values;
  std::int64_t total;
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i, Found::value_type& found) const {
    std::int64_t const value = values[i];
    std::int64_t const before = i == 0 ? 0 : values[i - 1];
    if ((value < before || value > total) && i < found.val) found = {i, value};
  }
};

/// The check of validate_cu_seqlens() without the static type of the offsets.
template <ExecutionSpace Exec>
void validate_offsets(Exec const& exec, AnyTensor const& given, std::int64_t total) {
  auto const offsets = offsets_ref("validate_cu_seqlens", "cu_seqlens", given);
  auto const found =
      find_in("validate_cu_seqlens", exec, given.extent[0], FirstInvalidOffset{offsets, total});
  if (found.val < given.extent[0])
    raise<ShapeError>("validate_cu_seqlens: offset ", found.val, " is ", found.loc,
                      "; expected ascending numbers in [0, ", total, "]");
}

}  // namespace detail

/// Checks that offsets of packed sequences ascend within [0, total]; throws ShapeError naming the
/// first that does not. This reads device memory: it fences `exec`.
///
/// \param view   batch + 1 offsets, as cu_seqlens() takes them
/// \param total  number of positions of the packed tensor
template <ExecutionSpace Exec, TensorLike T>
void validate_cu_seqlens(Exec const& exec, T const& view, std::int64_t total) {
  detail::validate_offsets(exec, detail::any_offsets<Exec>(view), total);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
