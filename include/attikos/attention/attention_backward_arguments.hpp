// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From tensors, options and extras to checked kernel arguments of attention's gradients.
#pragma once

#include <attikos/abi/attention_backward.hpp>
#include <attikos/attention/attention_arguments.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// The gradient of a bias. See d_bias().
template <TensorLike T>
struct DBias {
  T view;
};

/// Asks attention_backward() for the gradient of bias(): a tensor of the bias's extents and any
/// floating-point type that gets the sum over what the bias was broadcast to.
template <TensorLike T>
DBias<T> d_bias(T const& view) {
  return {view};
}

/// The gradient of attention sinks. See d_sinks().
template <TensorLike T>
struct DSinks {
  T view;
};

/// Asks attention_backward() for the gradient of sinks(): [heads_q], any floating-point type.
template <TensorLike T>
DSinks<T> d_sinks(T const& view) {
  return {view};
}

namespace detail {

template <class T>
concept AttentionBackwardExtra =
    is_any_wrapper<T, Lengths, CuSeqlens, Paged, Bias, Mask, Alibi, Sinks, Descale, Score, Weight,
                   Workspace, DBias, DSinks>;

/// Throws ShapeError unless `x` has the extents of `like`.
template <TensorLike X, TensorLike Like>
void expect_extents_of(char const* operation, char const* name, X const& x, char const* like_name,
                       Like const& like) {
  static_assert(rank_of<X> == rank_of<Like>,
                "attikos::attention_backward: a gradient has the rank of its tensor");
  check_extents(operation, name, x);
  auto const a = to_const_ref(x);
  auto const b = to_const_ref(like);
  for (int r = 0; r < rank_of<X>; ++r)
    if (a.extent[r] != b.extent[r])
      raise<ShapeError>(operation, ": ", name, " is ", describe(a), "; expected the extents of ",
                        like_name, ", ", describe_extents(b));
}

/// Strides of a rank-3 or rank-4 tensor in the order batch, head, position, feature.
template <TensorLike X>
void head_strides(X const& x, std::int64_t (&stride)[4]) {
  auto const x4 = with_heads(to_const_ref(x));
  for (int r = 0; r < 4; ++r) stride[r] = x4.stride[r];
}

/// Adds the gradients of bias and sinks to the arguments.
template <ExecutionSpace Exec, class... Extras>
void term_gradient_arguments(char const* operation, abi::AttentionBackwardArgs& a,
                             Extras const&... extras) {
  auto const wanted_bias = find_extra<DBias>(extras...);
  if constexpr (is_present<decltype(wanted_bias)>) {
    using View = decltype(wanted_bias.view);
    auto const given = find_extra<Bias>(extras...);
    static_assert(is_present<decltype(given)>,
                  "attikos::attention_backward: d_bias(view) goes with bias(view)");
    static_assert(is_floating_element<element_t<View>> && sizeof(element_t<View>) >= 2,
                  "attikos::attention_backward: d_bias is double, float, float16 or bfloat16");
    if constexpr (is_present<decltype(given)>) {
      check_output<Exec>(operation, "d_bias", wanted_bias.view);
      expect_extents_of(operation, "d_bias", wanted_bias.view, "bias", given.view);
    }
    auto const ref = to_ref(wanted_bias.view);
    a.d_bias = ref.data;
    a.type_d_bias = dtype_of<element_t<View>>;
    constexpr int rank = rank_of<View>;
    for (int t = 0; t < 4; ++t) {
      a.d_bias_extent[t] = t < 4 - rank ? 1 : ref.extent[t + rank - 4];
      a.d_bias_stride[t] = t < 4 - rank ? 0 : ref.stride[t + rank - 4];
    }
  }
  auto const wanted_sinks = find_extra<DSinks>(extras...);
  if constexpr (is_present<decltype(wanted_sinks)>) {
    using View = decltype(wanted_sinks.view);
    auto const given = find_extra<Sinks>(extras...);
    static_assert(is_present<decltype(given)>,
                  "attikos::attention_backward: d_sinks(view) goes with sinks(view)");
    static_assert(is_floating_element<element_t<View>> && sizeof(element_t<View>) >= 2,
                  "attikos::attention_backward: d_sinks is double, float, float16 or bfloat16");
    if constexpr (is_present<decltype(given)>) {
      check_output<Exec>(operation, "d_sinks", wanted_sinks.view);
      expect_extents_of(operation, "d_sinks", wanted_sinks.view, "sinks", given.view);
    }
    auto const ref = to_ref(wanted_sinks.view);
    a.d_sinks = ref.data;
    a.type_d_sinks = dtype_of<element_t<View>>;
    a.d_sinks_stride = ref.stride[0];
  }
}

/// Checks everything the host can see and fills the arguments.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out,
          TensorLike Lse, TensorLike Dout, TensorLike Dq, TensorLike Dk, TensorLike Dv,
          class... Extras>
abi::AttentionBackwardArgs attention_backward_arguments(char const* operation, Q const& q,
                                                        K const& k, V const& v, Out const& out,
                                                        Lse const& lse, Dout const& dout,
                                                        Dq const& dq, Dk const& dk, Dv const& dv,
                                                        AttentionOptions const& options,
                                                        Extras const&... extras) {
  using T = element_t<Q>;
  static_assert(sizeof(T) >= 2,
                "attikos::attention_backward: float8 tensors have no gradients; convert q, k, v to "
                "float16, bfloat16, float or double");
  static_assert(!is_present<decltype(find_extra<Paged>(extras...))>,
                "attikos::attention_backward: a paged cache has no gradients; pass k and v as "
                "[batch, heads_kv, seqlen_kv, head_dim] or packed");
  static_assert(!is_present<decltype(find_extra<Descale>(extras...))>,
                "attikos::attention_backward: descale goes with float8 tensors, which have no "
                "gradients");
  static_assert(std::is_same_v<T, element_t<Dout>> && std::is_same_v<T, element_t<Dq>> &&
                    std::is_same_v<T, element_t<Dk>> && std::is_same_v<T, element_t<Dv>>,
                "attikos::attention_backward: dout, dq, dk and dv have the element type of q");
  check_tensor<Exec, Dout>();
  abi::AttentionBackwardArgs a{};
  a.forward = attention_arguments<Exec>(operation, q, k, v, out, lse, options, extras...);
  expect_extents_of(operation, "dout", dout, "out", out);
  expect_extents_of(operation, "dq", dq, "q", q);
  expect_extents_of(operation, "dk", dk, "k", k);
  expect_extents_of(operation, "dv", dv, "v", v);
  check_output<Exec>(operation, "dq", dq);
  check_output<Exec>(operation, "dk", dk);
  check_output<Exec>(operation, "dv", dv);
  a.dout = to_const_ref(dout).data;
  a.dq = to_ref(dq).data;
  a.dk = to_ref(dk).data;
  a.dv = to_ref(dv).data;
  head_strides(dout, a.dout_stride);
  head_strides(dq, a.dq_stride);
  head_strides(dk, a.dk_stride);
  head_strides(dv, a.dv_stride);
  term_gradient_arguments<Exec>(operation, a, extras...);
  std::int64_t const widest = std::max(a.forward.head_dim, a.forward.head_dim_v);
  if (widest > (std::int64_t{1} << 26))
    raise<UnsupportedError>(operation, ": head_dim is ", widest, "; expected at most 67108864");
  return a;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
