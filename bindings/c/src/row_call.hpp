// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What operations on rows share: x and out of one shape and floating type.
#pragma once

#include <cmath>

#include "tensor.hpp"

namespace attikos::c {

inline void expect_finite(char const* operation, char const* name, double value) {
  if (!std::isfinite(value))
    fail(ATTIKOS_INVALID_ARGUMENT, operation, ": ", name, " is ", value,
         "; expected a finite number");
}

struct RowCall {
  char const* operation;
  attikos_context const& context;
  Tensor x, out;

  RowCall(char const* name, attikos_context* given, attikos_tensor const* given_x,
          attikos_tensor const* given_out, char const* out_name = "out", char const* x_name = "x")
      : operation(name),
        context(expect_context(name, given)),
        x(read_tensor(name, x_name, given_x, 1, 3, context)),
        out(read_tensor(name, out_name, given_out, 1, 3, context)) {
    if (out.rank != x.rank)
      fail(ATTIKOS_SHAPE_MISMATCH, operation, ": ", out.name, " is ", out.describe(),
           "; expected the extents of ", x.name, ", which is ", x.describe());
    expect_same_dtype(operation, out, x);
  }

  /// A vector of the type of another one.
  Tensor vector(char const* name, attikos_tensor const* given, Tensor const& like) const {
    Tensor const tensor = read_tensor(operation, name, given, 1, 1, context);
    expect_same_dtype(operation, tensor, like);
    return tensor;
  }

  /// Another tensor of the number of dimensions and the type of x.
  Tensor rows(char const* name, attikos_tensor const* given) const {
    Tensor const tensor = read_tensor(operation, name, given, x.rank, x.rank, context);
    expect_same_dtype(operation, tensor, x);
    return tensor;
  }

  /// Calls f(std::type_identity<T>, exec, x, out) with tensors of rank 3: one rank is compiled.
  template <class F>
  void run(F const& f) const {
    visit_floating(operation, x, [&]<class T>(std::type_identity<T> type) {
      run_on(context,
             [&](auto const& exec) { f(type, exec, x.span<T const, 3>(), out.span<T, 3>()); });
    });
  }
};

}  // namespace attikos::c
