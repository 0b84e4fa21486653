// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <attikos/reduce/log_softmax.hpp>
#include <attikos/reduce/mean_pool.hpp>
#include <attikos/reduce/softmax.hpp>
#include <attikos/reduce/softmax_backward.hpp>

#include "row_call.hpp"

namespace attikos::c {
namespace {

/// Lengths of the sequences; null data where they were not given.
Span<std::int32_t const, 1> read_pool_lengths(char const* operation, attikos_tensor const* lengths,
                                              std::int64_t batch, attikos_context const& context) {
  using Int = std::int32_t const;
  if (lengths == nullptr) return absent_vector<Int>(batch);
  Tensor const given = read_tensor(operation, "lengths", lengths, 1, 1, context);
  visit_dtype<std::int32_t>(operation, given, [](auto) {});
  return given.span<Int, 1>();
}

/// softmax's or log_softmax's gradient: `f(exec, out, dout, dx, options)` computes it.
template <class F>
void run_softmax_backward(char const* operation, attikos_context* context,
                          attikos_tensor const* out, attikos_tensor const* dout,
                          attikos_tensor const* dx, double scale, F const& f) {
  RowCall const call(operation, context, out, dx, "dx", "out");
  Tensor const given = call.rows("dout", dout);
  expect_finite(operation, "scale", scale);
  call.run([&]<class T>(std::type_identity<T>, auto const& exec, auto const& in, auto const& to) {
    f(exec, in, given.span<T const, 3>(), to, SoftmaxOptions{.scale = scale});
  });
}

}  // namespace
}  // namespace attikos::c

extern "C" {

using namespace attikos::c;

attikos_status attikos_softmax(attikos_context* context, attikos_tensor const* x,
                               attikos_tensor const* out, double scale) {
  return guarded([&] {
    constexpr char const* operation = "softmax";
    RowCall const call(operation, context, x, out);
    expect_finite(operation, "scale", scale);
    call.run([&](auto, auto const& exec, auto const& in, auto const& to) {
      attikos::softmax(exec, in, to, {.scale = scale});
    });
  });
}

attikos_status attikos_log_softmax(attikos_context* context, attikos_tensor const* x,
                                   attikos_tensor const* out, double scale) {
  return guarded([&] {
    constexpr char const* operation = "log_softmax";
    RowCall const call(operation, context, x, out);
    expect_finite(operation, "scale", scale);
    call.run([&](auto, auto const& exec, auto const& in, auto const& to) {
      attikos::log_softmax(exec, in, to, {.scale = scale});
    });
  });
}

attikos_status attikos_softmax_backward(attikos_context* context, attikos_tensor const* out,
                                        attikos_tensor const* dout, attikos_tensor const* dx,
                                        double scale) {
  return guarded([&] {
    run_softmax_backward("softmax_backward", context, out, dout, dx, scale,
                         [](auto const&... arguments) { attikos::softmax_backward(arguments...); });
  });
}

attikos_status attikos_log_softmax_backward(attikos_context* context, attikos_tensor const* out,
                                            attikos_tensor const* dout, attikos_tensor const* dx,
                                            double scale) {
  return guarded([&] {
    run_softmax_backward(
        "log_softmax_backward", context, out, dout, dx, scale,
        [](auto const&... arguments) { attikos::log_softmax_backward(arguments...); });
  });
}

attikos_status attikos_mean_pool(attikos_context* context, attikos_tensor const* x,
                                 attikos_tensor const* lengths, attikos_tensor const* out) {
  return guarded([&] {
    constexpr char const* operation = "mean_pool";
    auto const& where = expect_context(operation, context);
    Tensor const in = read_tensor(operation, "x", x, 3, 3, where);
    Tensor const to = read_tensor(operation, "out", out, 2, 2, where);
    expect_same_dtype(operation, to, in);
    auto const valid = read_pool_lengths(operation, lengths, in.extent[0], where);
    visit_floating(operation, in, [&]<class T>(std::type_identity<T>) {
      run_on(where, [&](auto const& exec) {
        attikos::mean_pool(exec, in.span<T const, 3>(), to.span<T, 2>(), {},
                           attikos::lengths(valid));
      });
    });
  });
}

attikos_status attikos_mean_pool_backward(attikos_context* context, attikos_tensor const* dout,
                                          attikos_tensor const* lengths, attikos_tensor const* dx) {
  return guarded([&] {
    constexpr char const* operation = "mean_pool_backward";
    auto const& where = expect_context(operation, context);
    Tensor const given = read_tensor(operation, "dout", dout, 2, 2, where);
    Tensor const to = read_tensor(operation, "dx", dx, 3, 3, where);
    expect_same_dtype(operation, to, given);
    auto const valid = read_pool_lengths(operation, lengths, to.extent[0], where);
    visit_floating(operation, given, [&]<class T>(std::type_identity<T>) {
      run_on(where, [&](auto const& exec) {
        attikos::mean_pool_backward(exec, given.span<T const, 2>(), to.span<T, 3>(), {},
                                    attikos::lengths(valid));
      });
    });
  });
}
}
