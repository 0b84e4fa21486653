// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operations on rows: arrays, a place for the result or None, and a number.
#include <tvm/ffi/function.h>

#include "call.hpp"

namespace attikos::python {
namespace {

/// f(context, x, out) on the rows of x.
template <class F, class... Vectors>
Any on_rows(AnyView x, AnyView out, F const& f, Vectors const&... vectors) {
  Array rows(x);
  expect(rows.is_floating() && rows.rank() >= 1);
  expect_together(rows, vectors...);
  Result result(out, rows.device(), rows.type(), rows.shape(), rows.rank());
  rows.join_leading();
  result.seen().join_leading();
  expect_success(f(context_of(rows.device()), rows.get(), result.get()));
  return result.finish();
}

Any rms_norm(AnyView x, AnyView out, AnyView weight, AnyView eps) {
  return unless_declined([&] {
    Array const w(weight);
    expect(w.given());
    return on_rows(
        x, out,
        [&](auto* context, auto* rows, auto* to) {
          return attikos_rms_norm(context, rows, w.get(), to, real(eps));
        },
        w);
  });
}

Any layer_norm(AnyView x, AnyView out, AnyView weight, AnyView bias, AnyView eps) {
  return unless_declined([&] {
    Array const w(weight);
    Array const b(bias);
    expect(w.given() && b.given());
    return on_rows(
        x, out,
        [&](auto* context, auto* rows, auto* to) {
          return attikos_layer_norm(context, rows, w.get(), b.get(), to, real(eps));
        },
        w, b);
  });
}

using OfRows = attikos_status(attikos_context*, attikos_tensor const*, attikos_tensor const*,
                              double);
template <OfRows* f>
Any of_rows(AnyView x, AnyView out, AnyView number) {
  return unless_declined([&] {
    return on_rows(x, out, [&](auto* context, auto* rows, auto* to) {
      return f(context, rows, to, real(number));
    });
  });
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(rms_norm, rms_norm);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(layer_norm, layer_norm);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(l2_normalize, of_rows<attikos_l2_normalize>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax, of_rows<attikos_softmax>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(log_softmax, of_rows<attikos_log_softmax>);

}  // namespace attikos::python
