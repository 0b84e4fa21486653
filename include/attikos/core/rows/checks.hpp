// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Checks that the gradients of row operations share.
#pragma once

#include <attikos/core/dispatch/to_abi.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Two arguments of a row operation agree in shape; throws ShapeError otherwise.
template <class T, class Like, int Rank>
void check_extents_like(char const* operation, char const* name, TensorRef<T, Rank> const& tensor,
                        char const* like_name, TensorRef<Like, Rank> const& like) {
  for (int r = 0; r < Rank; ++r)
    if (tensor.extent[r] != like.extent[r])
      raise<ShapeError>(operation, ": ", name, " is ", describe(tensor),
                        "; expected the extents of ", like_name, ", which is ", describe(like));
}

/// The same without static types.
inline void check_extents_like(char const* operation, char const* name, AnyTensor const& tensor,
                               char const* like_name, AnyTensor const& like) {
  for (int r = 0; r < like.rank; ++r)
    if (tensor.extent[r] != like.extent[r])
      raise<ShapeError>(operation, ": ", name, " is ", describe(tensor),
                        "; expected the extents of ", like_name, ", which is ", describe(like));
}

/// The checks that backward row operations share: `dout` and `dx` have the shape of `x` (or, for
/// operations that need only their result, of what `x_name` names).
template <ExecutionSpace Exec, TensorLike X, TensorLike Dout, TensorLike Dx>
void check_row_backward(char const* operation, char const* x_name, X const& x, Dout const& dout,
                        Dx const& dx) {
  check_tensor<Exec, X>();
  check_tensor<Exec, Dout>();
  check_output<Exec>(dx);
  check_extents(operation, x_name, x);
  check_extents(operation, "dout", dout);
  check_extents(operation, "dx", dx);
  static_assert(rank_of<X> == rank_of<Dout> && rank_of<X> == rank_of<Dx>,
                "attikos: x, dout and dx have one rank");
  static_assert(is_floating_element<element_t<X>> && is_floating_element<element_t<Dout>> &&
                    is_floating_element<element_t<Dx>>,
                "attikos: x, dout and dx hold floating-point elements");
  auto const rx = to_const_ref(x);
  check_extents_like(operation, "dout", to_const_ref(dout), x_name, rx);
  check_extents_like(operation, "dx", to_const_ref(dx), x_name, rx);
}

/// An output vector along the last dimension, such as the gradient of a weight.
template <ExecutionSpace Exec, TensorLike T>
void check_row_sum(char const* operation, char const* name, T const& sum, std::int64_t expected,
                   char const* like) {
  check_output<Exec>(sum);
  check_extents(operation, name, sum);
  static_assert(rank_of<T> == 1, "attikos: gradients of weights and biases have rank 1");
  static_assert(is_floating_element<element_t<T>>,
                "attikos: gradients of weights and biases hold floating-point elements");
  auto const ref = to_const_ref(sum);
  if (ref.extent[0] != expected)
    raise<ShapeError>(operation, ": ", name, " has ", ref.extent[0], " elements; expected ",
                      expected, ", as ", like);
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
