// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <attikos/gemm/gemm.hpp>

#include "options.hpp"
#include "quantize_scale.hpp"

namespace attikos::c {
namespace {

constexpr char const* operation = "gemm";

static_assert(static_cast<int>(Activation::silu) == ATTIKOS_ACTIVATION_SILU);

struct GemmCall {
  attikos_context const& context;
  Tensor a, b, c, bias, residual, scale_a, scale_b;
  bool has_bias, has_residual, has_scale_a, has_scale_b;
  GemmOptions options;

  /// Bias and residual carry their type at run time behind this point, so only their wrappers are
  /// compiled per type; without one, null data of the right extents stands for absent.
  template <class A, class B, class C, class Bias, class Residual>
  void run() const {
    auto const out = c.span<C, 3>();
    bool const rows = options.bias_along == BiasAlong::m;
    auto const bias_span =
        has_bias ? bias.span<Bias const, 1>() : absent_vector<Bias const>(out.extent(rows ? 1 : 2));
    auto const residual_span =
        has_residual
            ? residual.span<Residual const, 3>()
            : Span<Residual const, 3>(nullptr, {out.extent(0), out.extent(1), out.extent(2)}, {});
    run_on(context, [&](auto const& exec) {
      auto const product = [&](auto const&... scales) {
        gemm(exec, a.span<A const, 3>(), b.span<B const, 3>(), out, options,
             attikos::bias(bias_span), attikos::residual(residual_span), scales...);
      };
      if constexpr (std::is_same_v<A, float8_e4m3>) {
        product(attikos::scale_a(factors(has_scale_a, scale_a)),
                attikos::scale_b(factors(has_scale_b, scale_b)));
      } else {
        product();
      }
    });
  }

  static Span<float const, 3> factors(bool given, Tensor const& scale) {
    return given ? scale.span<float const, 3>()
                 : Span<float const, 3>(nullptr, {1, 1, 1}, {0, 0, 0});
  }

  /// The product's types are settled; bias and residual are of the result's type or float, both of
  /// one of them.
  template <class A, class B, class C>
  void run() const {
    if constexpr (std::is_same_v<C, std::int32_t>) {
      if (has_bias || has_residual)
        fail(ATTIKOS_UNSUPPORTED, operation,
             ": int8 x int8 -> int32 takes no bias and no residual");
      run<A, B, C, float, float>();
    } else if constexpr (sizeof(C) == 2) {
      with_addends<C, float>([&]<class X, class Y>(std::type_identity<X>, std::type_identity<Y>) {
        run<A, B, C, X, Y>();
      });
    } else {
      with_addends<C>([&]<class X, class Y>(std::type_identity<X>, std::type_identity<Y>) {
        run<A, B, C, X, Y>();
      });
    }
  }

  /// Calls f with the types of bias and residual, each one of `Ts`; the first stands for absent
  /// ones.
  template <class First, class... Rest, class F>
  void with_addends(F const& f) const {
    auto const each = [&](bool given, Tensor const& addend, auto const& g) {
      if (given) {
        visit_dtype<First, Rest...>(operation, addend, g);
      } else {
        g(std::type_identity<First>{});
      }
    };
    each(has_bias, bias, [&](auto x) { each(has_residual, residual, [&](auto y) { f(x, y); }); });
  }
};

void check_batches(Tensor const& tensor, Tensor const& c) {
  if (c.rank == 2 && tensor.rank == 3)
    fail(ATTIKOS_SHAPE_MISMATCH, operation, ": ", tensor.name, " is ", tensor.describe(),
         " but C is ", c.describe(), "; a batch needs one in C");
}

}  // namespace
}  // namespace attikos::c

extern "C" attikos_status attikos_gemm(attikos_context* context, attikos_tensor const* a,
                                       attikos_tensor const* b, attikos_tensor const* c,
                                       attikos_gemm_options const* options) {
  using namespace attikos::c;
  using attikos::bfloat16;
  using attikos::float16;
  using attikos::float8_e4m3;
  return guarded([&] {
    auto const& where = expect_context(operation, context);
    attikos_gemm_options const defaults = ATTIKOS_GEMM_OPTIONS_INIT;
    auto const o = read_options(operation, options, defaults, sizeof defaults);
    if (o.activation < ATTIKOS_ACTIVATION_NONE || o.activation > ATTIKOS_ACTIVATION_SILU)
      fail(ATTIKOS_INVALID_ARGUMENT, operation, ": activation is ", o.activation,
           "; expected an attikos_activation");
    GemmCall call{where,
                  {},
                  {},
                  {},
                  {},
                  {},
                  {},
                  {},
                  o.bias != nullptr,
                  o.residual != nullptr,
                  o.scale_a != nullptr,
                  o.scale_b != nullptr,
                  {}};
    call.a = read_tensor(operation, "A", a, 2, 3, where);
    call.b = read_tensor(operation, "B", b, 2, 3, where);
    call.c = read_tensor(operation, "C", c, 2, 3, where);
    check_batches(call.a, call.c);
    check_batches(call.b, call.c);
    if (call.has_bias) call.bias = read_tensor(operation, "bias", o.bias, 1, 1, where);
    if (call.has_residual)
      call.residual =
          read_tensor(operation, "residual", o.residual, call.c.rank, call.c.rank, where);
    if (call.has_scale_a) call.scale_a = read_scale(operation, "scale_a", o.scale_a, call.a, where);
    if (call.has_scale_b) call.scale_b = read_scale(operation, "scale_b", o.scale_b, call.b, where);
    if ((call.has_scale_a || call.has_scale_b) && call.a.dtype != ATTIKOS_FLOAT8_E4M3)
      fail(ATTIKOS_UNSUPPORTED, operation, ": scale_a and scale_b go with float8_e4m3; A is ",
           call.a.describe());
    call.options = {
        .alpha = o.alpha,
        .beta = o.beta,
        .trans_a = o.trans_a != 0,
        .trans_b = o.trans_b != 0,
        .activation = static_cast<attikos::Activation>(o.activation),
        .scale = o.scale,
        .bias_along = o.bias_along_rows != 0 ? attikos::BiasAlong::m : attikos::BiasAlong::n,
        .kernel = o.kernel};
    expect_same_dtype(operation, call.b, call.a);
    visit_dtype<double, float, float16, bfloat16, std::int8_t, float8_e4m3>(
        operation, call.a, [&]<class T>(std::type_identity<T>) {
          if constexpr (std::is_same_v<T, std::int8_t>) {
            visit_dtype<std::int32_t>(operation, call.c,
                                      [&](auto) { call.run<T, T, std::int32_t>(); });
          } else if constexpr (sizeof(T) == 1) {
            visit_dtype<float, float16, bfloat16>(
                operation, call.c, [&]<class C>(std::type_identity<C>) { call.run<T, T, C>(); });
          } else if constexpr (sizeof(T) == 2) {
            visit_dtype<T, float>(operation, call.c,
                                  [&]<class C>(std::type_identity<C>) { call.run<T, T, C>(); });
          } else {
            visit_dtype<T>(operation, call.c, [&](auto) { call.run<T, T, T>(); });
          }
        });
  });
}
