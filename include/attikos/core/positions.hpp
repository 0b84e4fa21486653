// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Positions of tokens: the wrapper that carries them to rotary embeddings.
#pragma once

#include <attikos/core/dispatch/to_abi.hpp>
#include <attikos/core/extras.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Positions of tokens, int32, rank 1 or 2. See positions().
template <TensorLike T>
struct Positions {
  T view;
};

/// Where tokens stand in their sequences: int32, [batch] with the position of each sequence's first
/// token, or [batch, seqlen] with the position of every token. Kernels read them on the device and
/// clamp them to the tables they index.
template <TensorLike T>
Positions<T> positions(T const& view) {
  return {view};
}

namespace detail {

/// Checked positions as pointer and strides; a null pointer stands for 0, 1, 2, ….
struct PositionsRef {
  std::int32_t const* data = nullptr;
  std::int64_t stride[2] = {0, 0};
  bool per_token = false;

  /// Position of token s of sequence b.
  KOKKOS_INLINE_FUNCTION std::int64_t operator()(std::int64_t b, std::int64_t s) const {
    if (data == nullptr) return s;
    return data[b * stride[0] + s * stride[1]] + (per_token ? 0 : s);
  }
};

/// positions(view) among the extras without its static type, absent where there is none.
template <ExecutionSpace Exec, class... Extras>
AnyTensor any_positions(Extras const&... extras) {
  auto const given = find_extra<Positions>(extras...);
  if constexpr (is_present<decltype(given)>) {
    using View = std::remove_cvref_t<decltype(given.view)>;
    check_tensor<Exec, View>();
    static_assert(std::is_same_v<element_t<View>, std::int32_t>, "attikos: positions are int32_t");
    static_assert(rank_of<View> == 1 || rank_of<View> == 2,
                  "attikos: positions are [batch] or [batch, seqlen]");
    return any_tensor(given.view);
  } else {
    return {};
  }
}

/// Checked positions; throws ShapeError if they do not fit.
inline PositionsRef positions_ref(char const* operation, AnyTensor const& x, std::int64_t batch,
                                  std::int64_t seqlen) {
  PositionsRef result;
  if (!x.given()) return result;
  if (x.extent[0] != batch || (x.rank == 2 && x.extent[1] != seqlen))
    raise<ShapeError>(operation, ": positions is ", describe(x), "; expected [", batch, "] or [",
                      batch, ", ", seqlen, "]");
  result.data = x.as<std::int32_t>();
  result.stride[0] = x.stride[0];
  if (x.rank == 2) result.stride[1] = x.stride[1];
  result.per_token = x.rank == 2;
  return result;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
