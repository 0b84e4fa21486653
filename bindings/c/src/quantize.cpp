// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <attikos/quantize/quantize.hpp>

#include "quantize_scale.hpp"

extern "C" {

using namespace attikos::c;

attikos_status attikos_quantize(attikos_context* context, attikos_tensor const* x,
                                attikos_tensor const* out, attikos_tensor const* scale) {
  return guarded([&] {
    constexpr char const* operation = "quantize";
    auto const& where = expect_context(operation, context);
    Tensor const in = read_tensor(operation, "x", x, 2, 3, where);
    Tensor const to = read_tensor(operation, "out", out, in.rank, in.rank, where);
    Tensor const factors = read_scale(operation, "scale", scale, in, where);
    visit_floating(operation, in, [&]<class T>(std::type_identity<T>) {
      visit_dtype<attikos::float8_e4m3, attikos::float8_e5m2, std::int8_t>(
          operation, to, [&]<class Q>(std::type_identity<Q>) {
            run_on(where, [&](auto const& exec) {
              attikos::quantize(exec, in.span<T const, 3>(), to.span<Q, 3>(),
                                factors.span<float, 3>());
            });
          });
    });
  });
}

attikos_status attikos_quantize_with_scale(attikos_context* context, attikos_tensor const* x,
                                           attikos_tensor const* scale, attikos_tensor const* out) {
  return guarded([&] {
    constexpr char const* operation = "quantize_with_scale";
    auto const& where = expect_context(operation, context);
    Tensor const in = read_tensor(operation, "x", x, 2, 3, where);
    Tensor const factors = read_scale(operation, "scale", scale, in, where);
    Tensor const to = read_tensor(operation, "out", out, in.rank, in.rank, where);
    visit_floating(operation, in, [&]<class T>(std::type_identity<T>) {
      visit_dtype<attikos::float8_e4m3, attikos::float8_e5m2, std::int8_t>(
          operation, to, [&]<class Q>(std::type_identity<Q>) {
            run_on(where, [&](auto const& exec) {
              attikos::quantize_with_scale(exec, in.span<T const, 3>(),
                                           factors.span<float const, 3>(), to.span<Q, 3>());
            });
          });
    });
  });
}

attikos_status attikos_dequantize(attikos_context* context, attikos_tensor const* x,
                                  attikos_tensor const* scale, attikos_tensor const* out) {
  return guarded([&] {
    constexpr char const* operation = "dequantize";
    auto const& where = expect_context(operation, context);
    Tensor const in = read_tensor(operation, "x", x, 2, 3, where);
    Tensor const to = read_tensor(operation, "out", out, in.rank, in.rank, where);
    Tensor const factors = read_scale(operation, "scale", scale, in, where);
    visit_dtype<attikos::float8_e4m3, attikos::float8_e5m2, std::int8_t>(
        operation, in, [&]<class Q>(std::type_identity<Q>) {
          visit_floating(operation, to, [&]<class T>(std::type_identity<T>) {
            run_on(where, [&](auto const& exec) {
              attikos::dequantize(exec, in.span<Q const, 3>(), factors.span<float const, 3>(),
                                  to.span<T, 3>());
            });
          });
        });
  });
}
}
