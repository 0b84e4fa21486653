// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <attikos/norm/layer_norm.hpp>
#include <attikos/norm/layer_norm_backward.hpp>
#include <attikos/norm/rms_norm.hpp>
#include <attikos/norm/rms_norm_backward.hpp>
#include <tuple>

#include "row_call.hpp"

namespace attikos::c {
namespace {

/// x + residual, which is stored, beside a norm of it.
struct ResidualStream {
  Tensor residual, sum;

  ResidualStream(RowCall const& call, attikos_tensor const* given_residual,
                 attikos_tensor const* given_sum)
      : residual(call.rows("residual", given_residual)),
        sum(call.rows("residual_sum", given_sum)) {}

  template <class T>
  auto extras() const {
    return std::tuple(attikos::residual(residual.span<T const, 3>()),
                      attikos::residual_sum(sum.span<T, 3>()));
  }
};

/// What is added to dx.
struct AddedGradient {
  Tensor residual;

  AddedGradient(RowCall const& call, attikos_tensor const* given)
      : residual(call.rows("residual", given)) {}

  template <class T>
  auto extras() const {
    return std::tuple(attikos::residual(residual.span<T const, 3>()));
  }
};

struct Nothing {
  explicit Nothing(RowCall const&) {}
  template <class T>
  auto extras() const {
    return std::tuple();
  }
};

/// More: what the call has besides, made of `more`.
template <class More, class... Given>
void run_rms_norm(attikos_context* context, attikos_tensor const* x, attikos_tensor const* weight,
                  attikos_tensor const* out, double eps, Given const*... more) {
  constexpr char const* operation = "rms_norm";
  RowCall const call(operation, context, x, out);
  Tensor const w = read_tensor(operation, "weight", weight, 1, 1, call.context);
  More const with(call, more...);
  expect_finite(operation, "eps", eps);
  call.run([&]<class T>(std::type_identity<T>, auto const& exec, auto const& in, auto const& to) {
    visit_beside<T>(operation, w, [&]<class W>(std::type_identity<W>) {
      std::apply(
          [&](auto const&... extras) {
            attikos::rms_norm(exec, in, w.span<W const, 1>(), to, {.eps = eps}, extras...);
          },
          with.template extras<T>());
    });
  });
}

template <class More, class... Given>
void run_layer_norm(attikos_context* context, attikos_tensor const* x, attikos_tensor const* weight,
                    attikos_tensor const* bias, attikos_tensor const* out, double eps,
                    Given const*... more) {
  constexpr char const* operation = "layer_norm";
  RowCall const call(operation, context, x, out);
  Tensor const w = read_tensor(operation, "weight", weight, 1, 1, call.context);
  Tensor const b = read_tensor(operation, "bias", bias, 1, 1, call.context);
  expect_same_dtype(operation, b, w);
  More const with(call, more...);
  expect_finite(operation, "eps", eps);
  call.run([&]<class T>(std::type_identity<T>, auto const& exec, auto const& in, auto const& to) {
    visit_beside<T>(operation, w, [&]<class W>(std::type_identity<W>) {
      std::apply(
          [&](auto const&... extras) {
            attikos::layer_norm(exec, in, w.span<W const, 1>(), b.span<W const, 1>(), to,
                                {.eps = eps}, extras...);
          },
          with.template extras<T>());
    });
  });
}

template <class More, class... Given>
void run_rms_norm_backward(attikos_context* context, attikos_tensor const* x,
                           attikos_tensor const* weight, attikos_tensor const* dout,
                           attikos_tensor const* dx, attikos_tensor const* dweight, double eps,
                           Given const*... more) {
  constexpr char const* operation = "rms_norm_backward";
  RowCall const call(operation, context, x, dx, "dx");
  Tensor const w = read_tensor(operation, "weight", weight, 1, 1, call.context);
  Tensor const given = call.rows("dout", dout);
  Tensor const dw = call.vector("dweight", dweight, w);
  More const with(call, more...);
  expect_finite(operation, "eps", eps);
  call.run([&]<class T>(std::type_identity<T>, auto const& exec, auto const& in, auto const& to) {
    visit_beside<T>(operation, w, [&]<class W>(std::type_identity<W>) {
      std::apply(
          [&](auto const&... extras) {
            attikos::rms_norm_backward(exec, in, w.span<W const, 1>(), given.span<T const, 3>(), to,
                                       dw.span<W, 1>(), {.eps = eps}, extras...);
          },
          with.template extras<T>());
    });
  });
}

template <class More, class... Given>
void run_layer_norm_backward(attikos_context* context, attikos_tensor const* x,
                             attikos_tensor const* weight, attikos_tensor const* dout,
                             attikos_tensor const* dx, attikos_tensor const* dweight,
                             attikos_tensor const* dbias, double eps, Given const*... more) {
  constexpr char const* operation = "layer_norm_backward";
  RowCall const call(operation, context, x, dx, "dx");
  Tensor const w = read_tensor(operation, "weight", weight, 1, 1, call.context);
  Tensor const given = call.rows("dout", dout);
  Tensor const dw = call.vector("dweight", dweight, w);
  Tensor const db = call.vector("dbias", dbias, w);
  More const with(call, more...);
  expect_finite(operation, "eps", eps);
  call.run([&]<class T>(std::type_identity<T>, auto const& exec, auto const& in, auto const& to) {
    visit_beside<T>(operation, w, [&]<class W>(std::type_identity<W>) {
      std::apply(
          [&](auto const&... extras) {
            attikos::layer_norm_backward(exec, in, w.span<W const, 1>(), given.span<T const, 3>(),
                                         to, dw.span<W, 1>(), db.span<W, 1>(), {.eps = eps},
                                         extras...);
          },
          with.template extras<T>());
    });
  });
}

}  // namespace
}  // namespace attikos::c

extern "C" {

using namespace attikos::c;

attikos_status attikos_rms_norm(attikos_context* context, attikos_tensor const* x,
                                attikos_tensor const* weight, attikos_tensor const* out,
                                double eps) {
  return guarded([&] { run_rms_norm<Nothing>(context, x, weight, out, eps); });
}

attikos_status attikos_rms_norm_residual(attikos_context* context, attikos_tensor const* x,
                                         attikos_tensor const* residual,
                                         attikos_tensor const* weight,
                                         attikos_tensor const* residual_sum,
                                         attikos_tensor const* out, double eps) {
  return guarded(
      [&] { run_rms_norm<ResidualStream>(context, x, weight, out, eps, residual, residual_sum); });
}

attikos_status attikos_layer_norm(attikos_context* context, attikos_tensor const* x,
                                  attikos_tensor const* weight, attikos_tensor const* bias,
                                  attikos_tensor const* out, double eps) {
  return guarded([&] { run_layer_norm<Nothing>(context, x, weight, bias, out, eps); });
}

attikos_status attikos_layer_norm_residual(attikos_context* context, attikos_tensor const* x,
                                           attikos_tensor const* residual,
                                           attikos_tensor const* weight, attikos_tensor const* bias,
                                           attikos_tensor const* residual_sum,
                                           attikos_tensor const* out, double eps) {
  return guarded([&] {
    run_layer_norm<ResidualStream>(context, x, weight, bias, out, eps, residual, residual_sum);
  });
}

attikos_status attikos_l2_normalize(attikos_context* context, attikos_tensor const* x,
                                    attikos_tensor const* out, double eps) {
  return guarded([&] {
    constexpr char const* operation = "l2_normalize";
    RowCall const call(operation, context, x, out);
    expect_finite(operation, "eps", eps);
    call.run([&](auto, auto const& exec, auto const& in, auto const& to) {
      attikos::l2_normalize(exec, in, to, {.eps = eps});
    });
  });
}

attikos_status attikos_l2_normalize_backward(attikos_context* context, attikos_tensor const* x,
                                             attikos_tensor const* dout, attikos_tensor const* dx,
                                             double eps) {
  return guarded([&] {
    constexpr char const* operation = "l2_normalize_backward";
    RowCall const call(operation, context, x, dx, "dx");
    Tensor const given = call.rows("dout", dout);
    expect_finite(operation, "eps", eps);
    call.run([&]<class T>(std::type_identity<T>, auto const& exec, auto const& in, auto const& to) {
      attikos::l2_normalize_backward(exec, in, given.span<T const, 3>(), to, {.eps = eps});
    });
  });
}

attikos_status attikos_rms_norm_backward(attikos_context* context, attikos_tensor const* x,
                                         attikos_tensor const* weight, attikos_tensor const* dout,
                                         attikos_tensor const* dx, attikos_tensor const* dweight,
                                         double eps) {
  return guarded(
      [&] { run_rms_norm_backward<Nothing>(context, x, weight, dout, dx, dweight, eps); });
}

attikos_status attikos_rms_norm_backward_residual(attikos_context* context, attikos_tensor const* x,
                                                  attikos_tensor const* weight,
                                                  attikos_tensor const* dout,
                                                  attikos_tensor const* residual,
                                                  attikos_tensor const* dx,
                                                  attikos_tensor const* dweight, double eps) {
  return guarded([&] {
    run_rms_norm_backward<AddedGradient>(context, x, weight, dout, dx, dweight, eps, residual);
  });
}

attikos_status attikos_layer_norm_backward(attikos_context* context, attikos_tensor const* x,
                                           attikos_tensor const* weight, attikos_tensor const* dout,
                                           attikos_tensor const* dx, attikos_tensor const* dweight,
                                           attikos_tensor const* dbias, double eps) {
  return guarded(
      [&] { run_layer_norm_backward<Nothing>(context, x, weight, dout, dx, dweight, dbias, eps); });
}

attikos_status attikos_layer_norm_backward_residual(
    attikos_context* context, attikos_tensor const* x, attikos_tensor const* weight,
    attikos_tensor const* dout, attikos_tensor const* residual, attikos_tensor const* dx,
    attikos_tensor const* dweight, attikos_tensor const* dbias, double eps) {
  return guarded([&] {
    run_layer_norm_backward<AddedGradient>(context, x, weight, dout, dx, dweight, dbias, eps,
                                           residual);
  });
}
}
