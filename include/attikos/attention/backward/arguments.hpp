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
    is_any_wrapper<T, Lengths, CuSeqlens, Paged, Bias, Mask, BlockMask, Alibi, Sinks, Descale,
                   Score, Weight, Workspace, DBias, DSinks>;

/// What a call was given besides what attention() takes.
struct AttentionBackwardTensors {
  AttentionTensors forward;
  AnyTensor dout, dq, dk, dv, d_bias, d_sinks;
};

/// Throws ShapeError unless `x` has the extents of `like`.
inline void expect_extents_of(char const* operation, char const* name, AnyTensor const& x,
                              char const* like_name, AnyTensor const& like) {
  check_extents(operation, name, x);
  for (int r = 0; r < like.rank; ++r)
    if (x.extent[r] != like.extent[r])
      raise<ShapeError>(operation, ": ", name, " is ", describe(x), "; expected the extents of ",
                        like_name, ", ", describe_extents(like));
}

/// Adds the gradients of bias and sinks to the arguments.
inline void term_gradient_arguments(char const* operation, abi::AttentionBackwardArgs& a,
                                    AttentionBackwardTensors const& t) {
  if (t.d_bias.given()) {
    expect_extents_of(operation, "d_bias", t.d_bias, "bias", t.forward.terms.bias);
    AnyTensor const d = t.d_bias.with_rank(4);
    a.d_bias = d.output();
    a.type_d_bias = d.type;
    for (int r = 0; r < 4; ++r) {
      a.d_bias_extent[r] = d.extent[r];
      a.d_bias_stride[r] = d.stride[r];
    }
  }
  if (t.d_sinks.given()) {
    expect_extents_of(operation, "d_sinks", t.d_sinks, "sinks", t.forward.terms.sinks);
    a.d_sinks = t.d_sinks.output();
    a.type_d_sinks = t.d_sinks.type;
    a.d_sinks_stride = t.d_sinks.stride[0];
  }
}

/// Checks everything the host can see and fills the arguments.
inline abi::AttentionBackwardArgs attention_backward_arguments(char const* operation,
                                                               AttentionBackwardTensors const& t,
                                                               AttentionOptions const& options) {
  abi::AttentionBackwardArgs a{};
  a.forward = attention_arguments(operation, t.forward, options);
  expect_extents_of(operation, "dout", t.dout, "out", t.forward.out);
  expect_extents_of(operation, "dq", t.dq, "q", t.forward.q);
  expect_extents_of(operation, "dk", t.dk, "k", t.forward.k);
  expect_extents_of(operation, "dv", t.dv, "v", t.forward.v);
  AnyTensor const dout = t.dout.with_rank(4), dq = t.dq.with_rank(4), dk = t.dk.with_rank(4),
                  dv = t.dv.with_rank(4);
  a.dout = dout.data;
  a.dq = dq.output();
  a.dk = dk.output();
  a.dv = dv.output();
  for (int r = 0; r < 4; ++r) {
    a.dout_stride[r] = dout.stride[r];
    a.dq_stride[r] = dq.stride[r];
    a.dk_stride[r] = dk.stride[r];
    a.dv_stride[r] = dv.stride[r];
  }
  term_gradient_arguments(operation, a, t);
  a.ordered = options.determinism != Determinism::unordered;
  check_outputs(operation,
                {{"dq", t.dq},
                 {"dk", t.dk},
                 {"dv", t.dv},
                 {"d_bias", t.d_bias},
                 {"d_sinks", t.d_sinks},
                 {"workspace", t.forward.workspace}},
                {{"dout", t.dout}, {"out", t.forward.out}, {"lse", t.forward.lse}},
                t.forward.inputs());
  std::int64_t const widest = std::max(a.forward.head_dim, a.forward.head_dim_v);
  if (widest > (std::int64_t{1} << 26))
    raise<UnsupportedError>(operation, ": head_dim is ", widest, "; expected at most 67108864");
  return a;
}

/// The tensors of a call without their static types, which are checked here.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out,
          TensorLike Lse, TensorLike Dout, TensorLike Dq, TensorLike Dk, TensorLike Dv,
          class... Extras>
AttentionBackwardTensors attention_backward_tensors(Q const& q, K const& k, V const& v,
                                                    Out const& out, Lse const& lse,
                                                    Dout const& dout, Dq const& dq, Dk const& dk,
                                                    Dv const& dv, Extras const&... extras) {
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
  static_assert(rank_of<Dout> == rank_of<Out> && rank_of<Dq> == rank_of<Q> &&
                    rank_of<Dk> == rank_of<K> && rank_of<Dv> == rank_of<V>,
                "attikos::attention_backward: a gradient has the rank of its tensor");
  check_tensor<Exec, Dout>();
  check_tensor<Exec, Dq>();
  check_tensor<Exec, Dk>();
  check_tensor<Exec, Dv>();
  check_writable(dq);
  check_writable(dk);
  check_writable(dv);
  AttentionBackwardTensors t;
  t.forward = attention_tensors<Exec>(q, k, v, out, lse, extras...);
  t.dout = any_tensor(dout);
  t.dq = any_tensor(dq);
  t.dk = any_tensor(dk);
  t.dv = any_tensor(dv);
  auto const d_bias = find_extra<DBias>(extras...);
  if constexpr (is_present<decltype(d_bias)>) {
    auto const bias = find_extra<Bias>(extras...);
    static_assert(is_present<decltype(bias)>,
                  "attikos::attention_backward: d_bias(view) goes with bias(view)");
    if constexpr (is_present<decltype(bias)>)
      static_assert(rank_of<decltype(d_bias.view)> == rank_of<decltype(bias.view)>,
                    "attikos::attention_backward: a gradient has the rank of its tensor");
    t.d_bias = any_term<Exec>(d_bias.view);
    check_writable(d_bias.view);
  }
  auto const d_sinks = find_extra<DSinks>(extras...);
  if constexpr (is_present<decltype(d_sinks)>) {
    static_assert(is_present<decltype(find_extra<Sinks>(extras...))>,
                  "attikos::attention_backward: d_sinks(view) goes with sinks(view)");
    static_assert(rank_of<decltype(d_sinks.view)> == 1,
                  "attikos::attention_backward: a gradient has the rank of its tensor");
    t.d_sinks = any_term<Exec>(d_sinks.view);
    check_writable(d_sinks.view);
  }
  return t;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
