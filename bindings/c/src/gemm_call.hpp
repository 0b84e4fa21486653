// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One matrix product after all checks that need no element type.
#pragma once

#include <attikos/gemm/gemm.hpp>

#include "options.hpp"
#include "quantize_scale.hpp"

namespace attikos::c {

static_assert(static_cast<int>(Activation::silu) == ATTIKOS_ACTIVATION_SILU);
static_assert(static_cast<int>(Compute::tf32x3) == ATTIKOS_COMPUTE_TF32X3);
static_assert(static_cast<int>(Accumulate::fast) == ATTIKOS_ACCUMULATE_FAST);

/// The caller's options over the defaults, with the enumerators checked.
attikos_gemm_options read_gemm_options(char const* operation, attikos_gemm_options const* options);

/// What of them the library calls options too.
GemmOptions gemm_options(attikos_gemm_options const& o);

/// A tensor that may be absent.
struct OptionalTensor {
  bool given = false;
  Tensor tensor;

  /// The tensor, else null data of the given extents, which operations take as absent.
  template <class T, int Rank>
  Span<T, Rank> span(std::array<std::int64_t, Rank> const& extents) const {
    return given ? tensor.span<T, Rank>() : Span<T, Rank>(nullptr, extents, {});
  }
};

OptionalTensor read_optional_tensor(char const* operation, char const* name,
                                    attikos_tensor const* given, int min_rank, int max_rank,
                                    attikos_context const& context);

/// The groups or counts of rows of a product, and that the matrices have the dimensions that go
/// with them.
void read_rows(char const* operation, attikos_gemm_options const& o, Tensor const& a,
               Tensor const& b, Tensor const& c, OptionalTensor& offsets, OptionalTensor& counts,
               attikos_context const& context);

struct GemmCall {
  static constexpr char const* operation = "gemm";

  attikos_context const& context;
  Explanation* log;  ///< null: run; else find out what would run
  GemmOptions options;
  Tensor a, b, c;
  OptionalTensor bias, residual, pre_activation, scale_a, scale_b, zero_point_a, zero_point_b,
      device_scale, scale_out, offsets, counts;

  /// The product's types are settled. Bias and residual are of the type of C or float, or of that
  /// of A beside a float C, each: their wrappers are compiled per type, with null data of the right
  /// extents where they are absent.
  template <class A, class B, class C>
  void run() const {
    if constexpr (std::is_same_v<C, std::int32_t>) {
      if (bias.given || residual.given || pre_activation.given)
        fail(ATTIKOS_UNSUPPORTED, operation,
             ": int8 x int8 -> int32 takes no bias, no residual and no pre_activation");
      run<A, B, C, float, float>();
    } else if constexpr (sizeof(C) == 1) {
      with_addends<float>([&](auto x, auto y) { run_typed<A, B, C>(x, y); });
    } else if constexpr (sizeof(C) == 2) {
      with_addends<C, float>([&](auto x, auto y) { run_typed<A, B, C>(x, y); });
    } else if constexpr (sizeof(A) == 2) {
      with_addends<C, A>([&](auto x, auto y) { run_typed<A, B, C>(x, y); });
    } else {
      with_addends<C>([&](auto x, auto y) { run_typed<A, B, C>(x, y); });
    }
  }

 private:
  template <class A, class B, class C, class X, class Y>
  void run_typed(std::type_identity<X>, std::type_identity<Y>) const {
    run<A, B, C, X, Y>();
  }

  /// Calls f with the types of bias and residual, each one of `Ts`; the first stands for absent
  /// ones.
  template <class First, class... Rest, class F>
  void with_addends(F const& f) const {
    auto const each = [&](OptionalTensor const& addend, auto const& g) {
      if (addend.given) {
        visit_dtype<First, Rest...>(operation, addend.tensor, g);
      } else {
        g(std::type_identity<First>{});
      }
    };
    each(bias, [&](auto x) { each(residual, [&](auto y) { f(x, y); }); });
  }

  static Span<float const, 1> number(OptionalTensor const& x) {
    return x.span<float const, 1>({1});
  }

  template <class A, class B, class C, class BiasType, class ResidualType>
  void run() const {
    using Pre = std::conditional_t<is_wide<C>, C, float>;
    if (pre_activation.given) visit_dtype<Pre>(operation, pre_activation.tensor, [](auto) {});
    if (sizeof(C) != 1 && scale_out.given)
      fail(ATTIKOS_UNSUPPORTED, operation, ": scale_out goes with a C of 8 bits; C is ",
           c.describe());
    if (offsets.given) {
      visit_dtype<std::int32_t, std::int64_t>(operation, offsets.tensor,
                                              [&]<class Int>(std::type_identity<Int>) {
                                                run<A, B, C, BiasType, ResidualType, Pre, 2>(
                                                    grouped(offsets.tensor.span<Int const, 1>()));
                                              });
    } else {
      run<A, B, C, BiasType, ResidualType, Pre, 3>(
          masked(counts.span<std::int32_t const, 1>({c.rank == 3 ? c.extent[0] : 1})));
    }
  }

  /// A and C of rank `Rank`; B has one matrix for each group where it is 2.
  template <class A, class B, class C, class BiasType, class ResidualType, class Pre, int Rank,
            class Rows>
  void run(Rows const& rows) const {
    auto const out = c.span<C, Rank>();
    bool const along_m = options.bias_along == BiasAlong::m;
    std::array<std::int64_t, Rank> extents{};
    for (std::size_t r = 0; r < Rank; ++r) extents[r] = out.extent(r);
    run_on(context, [&](auto const& exec) {
      auto const product = [&](auto const&... more) {
        auto const call = [&](auto const&... extras) {
          if (log != nullptr) {
            *log = explain(op::gemm, exec, a.span<A const, Rank>(), b.span<B const, 3>(), out,
                           options, extras...);
          } else {
            gemm(exec, a.span<A const, Rank>(), b.span<B const, 3>(), out, options, extras...);
          }
        };
        call(attikos::bias(bias.span<BiasType const, 1>({extents[along_m ? Rank - 2 : Rank - 1]})),
             attikos::residual(residual.span<ResidualType const, Rank>(extents)),
             attikos::pre_activation(optional_output<Pre, Rank>(pre_activation, extents)),
             attikos::scale_a(scale_a.span<float const, Rank>(ones<Rank>())),
             attikos::scale_b(scale_b.span<float const, 3>(ones<3>())),
             attikos::device_scale(number(device_scale)), rows, more...);
      };
      if constexpr (std::is_same_v<A, std::int8_t>) {
        auto const zero_a = attikos::zero_point_a(zero_point_a.span<std::int32_t const, 1>({1}));
        auto const zero_b = attikos::zero_point_b(zero_point_b.span<std::int32_t const, 1>({1}));
        if constexpr (std::is_same_v<C, std::int8_t>) {
          product(zero_a, zero_b, attikos::scale_out(number(scale_out)));
        } else {
          product(zero_a, zero_b);
        }
      } else if constexpr (sizeof(C) == 1) {
        product(attikos::scale_out(number(scale_out)));
      } else {
        product();
      }
    });
  }

  template <class T>
  static constexpr bool is_wide = std::is_same_v<T, double> || std::is_same_v<T, float> ||
                                  std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

  template <int Rank>
  static std::array<std::int64_t, Rank> ones() {
    std::array<std::int64_t, Rank> result{};
    result.fill(1);
    return result;
  }

  /// An output may be absent, too; strides of 1 keep it from looking like one that shares memory.
  template <class T, int Rank>
  static Span<T, Rank> optional_output(OptionalTensor const& x,
                                       std::array<std::int64_t, Rank> const& extents) {
    return x.given ? x.tensor.span<T, Rank>() : Span<T, Rank>(nullptr, extents, ones<Rank>());
  }
};

/// Products of int8, and those with a float8 side. See gemm_int8.cpp, gemm_float8.cpp.
void run_int8_gemm(GemmCall const& call);
void run_float8_gemm(GemmCall const& call);

}  // namespace attikos::c
