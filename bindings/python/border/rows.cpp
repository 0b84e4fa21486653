// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operations on rows: arrays, a place for the result or None, and a number. The place may be the
// caller's own: whatever it is, it has to be what a new one would have been but for its strides.
#include <tvm/ffi/function.h>

#include <initializer_list>

#include "call.hpp"

namespace attikos::python {
namespace {

Result like(Array const& x, AnyView into = Any()) {
  return {into, x.device(), x.type(), x.shape(), x.rank()};
}

/// Declines a place of the caller's that is not like x but for its strides; sees its rows.
void see_rows_like(Array const& x, Result& result) {
  expect_together(x, result.seen());
  result.expect_like(x);
  result.seen().join_leading();
}

/// f(context, x, out) on the rows of x.
template <class F, class... Vectors>
Any on_rows(AnyView x, AnyView out, F const& f, Vectors const&... vectors) {
  Array rows(x);
  expect(rows.is_floating() && rows.rank() >= 1);
  expect_together(rows, vectors...);
  Result result = like(rows, out);
  see_rows_like(rows, result);
  rows.join_leading();
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

/// Declines arrays that do not lie together or are of other extents.
void expect_like(Array const& more, Array const& x) {
  expect(more.given() && more.rank() == x.rank());
  for (int r = 0; r < x.rank(); ++r) expect(more.extent(r) == x.extent(r));
  expect_together(x, more);
}

/// The norm of x + residual, and that sum: f(context, x, residual, sum, out) is the call. Of new
/// arrays Python gets out, or sum where out is the caller's; where both are new, sum by more().
template <class F, class... Vectors>
Any norm_of_sum(AnyView x, AnyView residual, AnyView out_into, AnyView sum_into, F const& f,
                Vectors const&... vectors) {
  Array rows(x);
  Array added(residual);
  expect(rows.is_floating() && rows.rank() >= 1 && (... && vectors.given()));
  expect_like(added, rows);
  expect_together(rows, vectors...);
  Result out = like(rows, out_into);
  Result sum = like(rows, sum_into);
  for (Result* result : {&out, &sum}) see_rows_like(rows, *result);
  for (Array* array : {&rows, &added}) array->join_leading();
  expect_success(f(context_of(rows.device()), rows.get(), added.get(), sum.get(), out.get()));
  if (sum.is_callers()) return out.finish();
  return out.is_callers() ? sum.finish() : out.finish({&sum});
}

Any rms_norm_residual(AnyView x, AnyView residual, AnyView weight, AnyView out, AnyView sum,
                      AnyView eps) {
  return unless_declined([&] {
    Array const w(weight);
    return norm_of_sum(
        x, residual, out, sum,
        [&](auto* context, auto* rows, auto* added, auto* total, auto* to) {
          return attikos_rms_norm_residual(context, rows, added, w.get(), total, to, real(eps));
        },
        w);
  });
}

Any layer_norm_residual(AnyView x, AnyView residual, AnyView weight, AnyView bias, AnyView out,
                        AnyView sum, AnyView eps) {
  return unless_declined([&] {
    Array const w(weight);
    Array const b(bias);
    return norm_of_sum(
        x, residual, out, sum,
        [&](auto* context, auto* rows, auto* added, auto* total, auto* to) {
          return attikos_layer_norm_residual(context, rows, added, w.get(), b.get(), total, to,
                                             real(eps));
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

/// f(context, x, dout, dx) on the rows of x, or of the result that stands for x; further results
/// are those of f, and so is what is added to dx, if that is there.
template <class F>
Any gradient_of_rows(AnyView x, AnyView dout, Array const& weight, F const& f,
                     std::initializer_list<Result const*> others = {}, Array* added = nullptr) {
  Array rows(x);
  Array given(dout);
  expect(rows.is_floating() && rows.rank() >= 1);
  expect_like(given, rows);
  expect_together(rows, weight);
  if (added != nullptr) {
    expect_like(*added, rows);
    added->join_leading();
  }
  Result dx = like(rows);
  rows.join_leading();
  given.join_leading();
  dx.seen().join_leading();
  expect_success(f(context_of(rows.device()), rows.get(), given.get(), dx.get()));
  return others.size() == 0 ? dx.finish() : dx.finish(others);
}

/// dx and dweight
Any rms_norm_backward(AnyView x, AnyView weight, AnyView dout, AnyView eps) {
  return unless_declined([&] {
    Array const w(weight);
    expect(w.given());
    Result const dweight = like(w);
    auto const f = [&](auto* context, auto* rows, auto* given, auto* to) {
      return attikos_rms_norm_backward(context, rows, w.get(), given, to, dweight.get(), real(eps));
    };
    return gradient_of_rows(x, dout, w, f, {&dweight});
  });
}

/// dx, dweight and dbias
Any layer_norm_backward(AnyView x, AnyView weight, AnyView dout, AnyView eps) {
  return unless_declined([&] {
    Array const w(weight);
    expect(w.given());
    Result const dweight = like(w);
    Result const dbias = like(w);
    auto const f = [&](auto* context, auto* rows, auto* given, auto* to) {
      return attikos_layer_norm_backward(context, rows, w.get(), given, to, dweight.get(),
                                         dbias.get(), real(eps));
    };
    return gradient_of_rows(x, dout, w, f, {&dweight, &dbias});
  });
}

/// dx, with the residual in it, and dweight
Any rms_norm_backward_residual(AnyView x, AnyView weight, AnyView dout, AnyView residual,
                               AnyView eps) {
  return unless_declined([&] {
    Array const w(weight);
    Array added(residual);
    expect(w.given());
    Result const dweight = like(w);
    auto const f = [&](auto* context, auto* rows, auto* given, auto* to) {
      return attikos_rms_norm_backward_residual(context, rows, w.get(), given, added.get(), to,
                                                dweight.get(), real(eps));
    };
    return gradient_of_rows(x, dout, w, f, {&dweight}, &added);
  });
}

/// dx, with the residual in it, dweight and dbias
Any layer_norm_backward_residual(AnyView x, AnyView weight, AnyView dout, AnyView residual,
                                 AnyView eps) {
  return unless_declined([&] {
    Array const w(weight);
    Array added(residual);
    expect(w.given());
    Result const dweight = like(w);
    Result const dbias = like(w);
    auto const f = [&](auto* context, auto* rows, auto* given, auto* to) {
      return attikos_layer_norm_backward_residual(context, rows, w.get(), given, added.get(), to,
                                                  dweight.get(), dbias.get(), real(eps));
    };
    return gradient_of_rows(x, dout, w, f, {&dweight, &dbias}, &added);
  });
}

using OfGradients = attikos_status(attikos_context*, attikos_tensor const*, attikos_tensor const*,
                                   attikos_tensor const*, double);
template <OfGradients* f>
Any of_gradients(AnyView x, AnyView dout, AnyView number) {
  return unless_declined([&] {
    Array const none;
    return gradient_of_rows(x, dout, none, [&](auto* context, auto* rows, auto* given, auto* to) {
      return f(context, rows, given, to, real(number));
    });
  });
}

/// Logits and labels of rows, in what dimensions libattikos takes them, and what sums of them are.
struct Labeled {
  Array logits, labels;

  Labeled(AnyView given_logits, AnyView given_labels) : logits(given_logits), labels(given_labels) {
    expect(logits.is_floating() && (logits.rank() == 2 || logits.rank() == 3));
    expect(labels.given() && labels.rank() == rank());
    for (int r = 0; r < rank(); ++r) expect(labels.extent(r) == logits.extent(r));
    expect_together(logits, labels);
  }
  int rank() const { return logits.rank() - 1; }
  DLDataType wide() const {
    std::uint8_t const bits = logits.dtype() == ATTIKOS_FLOAT64 ? 64 : 32;
    return {kDLFloat, bits, 1};
  }
};

/// loss, and the log-sum-exp by more()
Any cross_entropy(AnyView logits, AnyView labels, AnyView loss, AnyView lse, AnyView smoothing,
                  AnyView ignored) {
  return unless_declined([&] {
    Labeled const x(logits, labels);
    auto const made = [&](AnyView into) {
      return Result(into, x.logits.device(), x.wide(), x.logits.shape(), x.rank());
    };
    Result const of_rows = made(loss), sums = made(lse);
    expect_success(attikos_cross_entropy(context_of(x.logits.device()), x.logits.get(),
                                         x.labels.get(), of_rows.get(), sums.get(), real(smoothing),
                                         integer(ignored)));
    return of_rows.finish({&sums});
  });
}

/// dlogits
Any cross_entropy_backward(AnyView logits, AnyView labels, AnyView lse, AnyView dloss,
                           AnyView smoothing, AnyView ignored) {
  return unless_declined([&] {
    Labeled const x(logits, labels);
    Array const sums(lse), given(dloss);
    expect_together(x.logits, sums, given);
    Result const dlogits = like(x.logits);
    expect_success(attikos_cross_entropy_backward(
        context_of(x.logits.device()), x.logits.get(), x.labels.get(), sums.get(), given.get(),
        dlogits.get(), real(smoothing), integer(ignored)));
    return dlogits.finish();
  });
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(rms_norm, rms_norm);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(layer_norm, layer_norm);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(l2_normalize, of_rows<attikos_l2_normalize>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax, of_rows<attikos_softmax>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(log_softmax, of_rows<attikos_log_softmax>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(cross_entropy, cross_entropy);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(cross_entropy_backward, cross_entropy_backward);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(rms_norm_backward, rms_norm_backward);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(layer_norm_backward, layer_norm_backward);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(rms_norm_residual, rms_norm_residual);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(layer_norm_residual, layer_norm_residual);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(rms_norm_backward_residual, rms_norm_backward_residual);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(layer_norm_backward_residual, layer_norm_backward_residual);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(l2_normalize_backward, of_gradients<attikos_l2_normalize_backward>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax_backward, of_gradients<attikos_softmax_backward>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(log_softmax_backward, of_gradients<attikos_log_softmax_backward>);

}  // namespace attikos::python
