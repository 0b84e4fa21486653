// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <attikos/reduce/log_softmax.hpp>
#include <attikos/reduce/mean_pool.hpp>
#include <attikos/reduce/softmax.hpp>

#include "row_call.hpp"

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

attikos_status attikos_mean_pool(attikos_context* context, attikos_tensor const* x,
                                 attikos_tensor const* lengths, attikos_tensor const* out) {
  return guarded([&] {
    constexpr char const* operation = "mean_pool";
    auto const& where = expect_context(operation, context);
    Tensor const in = read_tensor(operation, "x", x, 3, 3, where);
    Tensor const to = read_tensor(operation, "out", out, 2, 2, where);
    expect_same_dtype(operation, to, in);
    using Int = std::int32_t const;
    auto valid = absent_vector<Int>(in.extent[0]);
    if (lengths != nullptr) {
      Tensor const given = read_tensor(operation, "lengths", lengths, 1, 1, where);
      visit_dtype<std::int32_t>(operation, given, [](auto) {});
      valid = given.span<Int, 1>();
    }
    visit_floating(operation, in, [&]<class T>(std::type_identity<T>) {
      run_on(where, [&](auto const& exec) {
        attikos::mean_pool(exec, in.span<T const, 3>(), to.span<T, 2>(), {},
                           attikos::lengths(valid));
      });
    });
  });
}
}
