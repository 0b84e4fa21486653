// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From tensors and options to checked kernel arguments of a matrix product.
#pragma once

#include <attikos/core/to_abi.hpp>
#include <attikos/epilogue/activation.hpp>
#include <attikos/gemm/gemm_options.hpp>
#include <cmath>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// A tensor of rank 2 as one of rank 3 with a batch of one.
template <class T, int Rank>
TensorRef<T, 3> with_batch(TensorRef<T, Rank> const& x) {
  if constexpr (Rank == 3) {
    return x;
  } else {
    return {x.data, {1, x.extent[0], x.extent[1]}, {0, x.stride[0], x.stride[1]}};
  }
}

template <class T, int Rank>
TensorRef<T, Rank> transposed(TensorRef<T, Rank> x, bool yes) {
  if (yes) {
    std::swap(x.extent[Rank - 2], x.extent[Rank - 1]);
    std::swap(x.stride[Rank - 2], x.stride[Rank - 1]);
  }
  return x;
}

/// Type in which a product is summed: double if either side is, float for the rest, and for
/// integers the unsigned 32-bit integers, whose wrap-around is defined and agrees with the two's
/// complement result.
template <class A, class B, class C>
using GemmAccumulator =
    std::conditional_t<std::is_integral_v<A>, std::uint32_t,
                       std::conditional_t<std::is_same_v<A, double> || std::is_same_v<B, double> ||
                                              std::is_same_v<C, double>,
                                          double, float>>;

/// Element types that one product may combine.
template <class A, class B, class C>
constexpr bool gemm_types_supported() {
  constexpr auto real = []<class T>(std::type_identity<T>) {
    return std::is_same_v<T, double> || std::is_same_v<T, float> || std::is_same_v<T, float16> ||
           std::is_same_v<T, bfloat16>;
  };
  if constexpr (std::is_same_v<A, std::int8_t> && std::is_same_v<B, std::int8_t>) {
    return std::is_same_v<C, std::int32_t>;
  } else {
    return real(std::type_identity<A>{}) && real(std::type_identity<B>{}) &&
           real(std::type_identity<C>{});
  }
}

/// A factor as the kernels use it: rounded to the accumulator. Throws Error unless it is finite
/// there.
template <class Acc>
double checked_factor(char const* operation, char const* name, double value) {
  double rounded = value;
  if constexpr (std::is_same_v<Acc, float>)
    rounded = static_cast<double>(static_cast<float>(value));
  if (!std::isfinite(rounded))
    raise<Error>(operation, ": ", name, " is ", value, "; expected a number that is finite in ",
                 std::is_same_v<Acc, float> ? "float32" : "float64");
  return rounded;
}

/// Checks everything the host can see and fills the arguments. Nothing is launched or written when
/// this throws.
template <ExecutionSpace Exec, TensorLike A, TensorLike B, TensorLike C, class... Extras>
abi::GemmArgs gemm_arguments(A const& a, B const& b, C const& c, GemmOptions const& options,
                             Extras const&... extras) {
  check_tensor<Exec, A>();
  check_tensor<Exec, B>();
  check_output<Exec>("gemm", "C", c);
  static_assert(rank_of<A> == 2 || rank_of<A> == 3, "attikos::gemm: A has rank 2 or 3");
  static_assert(rank_of<B> == 2 || rank_of<B> == 3, "attikos::gemm: B has rank 2 or 3");
  static_assert(rank_of<C> == 2 || rank_of<C> == 3, "attikos::gemm: C has rank 2 or 3");
  static_assert(rank_of<C> == 3 || (rank_of<A> == 2 && rank_of<B> == 2),
                "attikos::gemm: a batch in A or B needs one in C");
  static_assert(gemm_types_supported<element_t<A>, element_t<B>, element_t<C>>(),
                "attikos::gemm: element types must be double, float, float16 or bfloat16 in any "
                "mix, or int8 x int8 -> "
                "int32");
  check_extents("gemm", "A", a);
  check_extents("gemm", "B", b);
  check_extents("gemm", "C", c);

  auto const ref_a = to_const_ref(a);
  auto const ref_b = to_const_ref(b);
  auto const ref_c = to_ref(c);
  auto const op_a = with_batch(transposed(ref_a, options.trans_a));
  auto const op_b = with_batch(transposed(ref_b, options.trans_b));
  auto const out = with_batch(ref_c);
  auto const shapes = [&] {
    return " A is " + describe(ref_a) + ", B is " + describe(ref_b) + ", C is " + describe(ref_c) +
           ".";
  };
  if (op_a.extent[2] != op_b.extent[1])
    raise<ShapeError>("gemm: ", options.trans_b ? "op(B) = B^T" : "B", " has ", op_b.extent[1],
                      " rows but ", options.trans_a ? "op(A) = A^T" : "A", " has ", op_a.extent[2],
                      " columns (k must match).", shapes());
  if (out.extent[1] != op_a.extent[1] || out.extent[2] != op_b.extent[2])
    raise<ShapeError>("gemm: C has extents [", out.extent[1], ", ", out.extent[2], "]; expected [",
                      op_a.extent[1], ", ", op_b.extent[2], "] from op(A) and op(B).", shapes());
  auto const check_batch = [&](char const* name, auto const& x) {
    if (x.extent[0] != out.extent[0] && x.extent[0] != 1)
      raise<ShapeError>("gemm: ", name, " has batch ", x.extent[0], "; expected ", out.extent[0],
                        " as in C, or 1 to share one matrix.", shapes());
  };
  check_batch("A", op_a);
  check_batch("B", op_b);

  using Acc = GemmAccumulator<element_t<A>, element_t<B>, element_t<C>>;
  abi::GemmArgs g{};
  g.a = ref_a.data;
  g.b = ref_b.data;
  g.c = ref_c.data;
  g.type_a = dtype_of<element_t<A>>;
  g.type_b = dtype_of<element_t<B>>;
  g.type_c = dtype_of<element_t<C>>;
  g.batch = out.extent[0];
  g.m = out.extent[1];
  g.n = out.extent[2];
  g.k = op_a.extent[2];
  g.a_batch = op_a.extent[0] == 1 ? 0 : op_a.stride[0];
  g.a_m = op_a.stride[1];
  g.a_k = op_a.stride[2];
  g.b_batch = op_b.extent[0] == 1 ? 0 : op_b.stride[0];
  g.b_k = op_b.stride[1];
  g.b_n = op_b.stride[2];
  g.c_batch = out.stride[0];
  g.c_m = out.stride[1];
  g.c_n = out.stride[2];
  g.alpha = checked_factor<Acc>("gemm", "alpha", options.alpha);
  g.beta = checked_factor<Acc>("gemm", "beta", options.beta);
  g.scale = checked_factor<Acc>("gemm", "scale", options.scale);
  g.activation = options.activation;
  g.bias_along = options.bias_along;

  auto const extra_bias = find_extra<Bias>(extras...);
  if constexpr (is_present<decltype(extra_bias)>) {
    using View = decltype(extra_bias.view);
    check_tensor<Exec, View>();
    static_assert(rank_of<View> == 1, "attikos::gemm: bias has rank 1");
    static_assert(is_floating_element<element_t<View>> && sizeof(element_t<View>) >= 2,
                  "attikos::gemm: bias must be double, float, float16 or bfloat16");
    auto const ref = to_const_ref(extra_bias.view);
    std::int64_t const expected = options.bias_along == BiasAlong::n ? g.n : g.m;
    if (ref.extent[0] != expected)
      raise<ShapeError>("gemm: bias has ", ref.extent[0], " elements; expected ", expected,
                        ", one per ", options.bias_along == BiasAlong::n ? "column" : "row",
                        " of C.", shapes());
    g.bias = ref.data;
    g.type_bias = dtype_of<element_t<View>>;
    g.bias_stride = ref.stride[0];
  }
  auto const extra_residual = find_extra<Residual>(extras...);
  if constexpr (is_present<decltype(extra_residual)>) {
    using View = decltype(extra_residual.view);
    check_tensor<Exec, View>();
    static_assert(rank_of<View> == rank_of<C>, "attikos::gemm: residual has the rank of C");
    static_assert(is_floating_element<element_t<View>> && sizeof(element_t<View>) >= 2,
                  "attikos::gemm: residual must be double, float, float16 or bfloat16");
    auto const ref = to_const_ref(extra_residual.view);
    auto const batched = with_batch(ref);
    for (int r = 0; r < 3; ++r)
      if (batched.extent[r] != out.extent[r])
        raise<ShapeError>("gemm: residual is ", describe(ref), "; expected the extents of C.",
                          shapes());
    g.residual = ref.data;
    g.type_residual = dtype_of<element_t<View>>;
    g.residual_batch = batched.stride[0];
    g.residual_m = batched.stride[1];
    g.residual_n = batched.stride[2];
  }
  if constexpr (std::is_integral_v<element_t<A>>) {
    if (options.alpha != 1 || (options.beta != 0 && options.beta != 1) || options.scale != 1 ||
        options.activation != Activation::none || g.bias != nullptr || g.residual != nullptr)
      raise<UnsupportedError>(
          "gemm: int8 x int8 -> int32 is exact and takes alpha = 1, beta = 0 or 1 and no scale, "
          "bias, activation or residual; got alpha = ",
          options.alpha, ", beta = ", options.beta, ", scale = ", options.scale,
          ", activation = ", activation_name(options.activation),
          g.bias != nullptr ? ", a bias" : "", g.residual != nullptr ? ", a residual" : "", ".");
  }
  return g;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
