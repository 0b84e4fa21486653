// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From tensors and options to checked kernel arguments of attention.
#pragma once

#include <attikos/attention/attention_options.hpp>
#include <attikos/core/tile.hpp>
#include <attikos/core/to_abi.hpp>
#include <cmath>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Type in which scores, weights and sums are kept.
template <class T>
using AttentionAccumulator = typename ElementTraits<T>::Accumulator;

/// [batch·heads, seqlen, d] counts as batch 1: the ratio of query to key heads survives the
/// joining.
template <class T, int Rank>
TensorRef<T, 4> with_heads(TensorRef<T, Rank> const& x) {
  if constexpr (Rank == 4) {
    return x;
  } else {
    return {x.data,
            {1, x.extent[0], x.extent[1], x.extent[2]},
            {0, x.stride[0], x.stride[1], x.stride[2]}};
  }
}

/// Checks everything the host can see and fills the arguments. `lse` is a tensor or Absent.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out, class Lse,
          class... Extras>
abi::AttentionArgs attention_arguments(Q const& q, K const& k, V const& v, Out const& out,
                                       Lse const& lse, AttentionOptions const& options,
                                       Extras const&... extras) {
  using T = element_t<Q>;
  using Acc = AttentionAccumulator<T>;
  constexpr int rank = rank_of<Q>;
  check_tensor<Exec, Q>();
  check_tensor<Exec, K>();
  check_tensor<Exec, V>();
  check_output<Exec>("attention", "out", out);
  static_assert(rank == 3 || rank == 4,
                "attikos::attention: q has rank 4 [batch, heads, seqlen, head_dim] or 3 with the "
                "first two joined");
  static_assert(rank_of<K> == rank && rank_of<V> == rank && rank_of<Out> == rank,
                "attikos::attention: q, k, v and out have one rank");
  static_assert(std::is_same_v<T, element_t<K>> && std::is_same_v<T, element_t<V>> &&
                    std::is_same_v<T, element_t<Out>>,
                "attikos::attention: q, k, v and out have one element type");
  static_assert(std::is_same_v<T, double> || std::is_same_v<T, float> ||
                    std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>,
                "attikos::attention: element type is double, float, float16 or bfloat16");
  check_extents("attention", "q", q);
  check_extents("attention", "k", k);
  check_extents("attention", "v", v);
  check_extents("attention", "out", out);

  auto const rq = to_const_ref(q);
  auto const rk = to_const_ref(k);
  auto const rv = to_const_ref(v);
  auto const ro = to_ref(out);
  auto const shapes = [&] {
    return " q is " + describe(rq) + ", k is " + describe(rk) + ", v is " + describe(rv) +
           ", out is " + describe(ro) + ".";
  };
  auto const q4 = with_heads(rq);
  auto const k4 = with_heads(rk);
  auto const v4 = with_heads(rv);
  auto const o4 = with_heads(ro);
  auto const expect = [&](char const* name, char const* what, std::int64_t got, std::int64_t wanted,
                          char const* like) {
    if (got != wanted)
      raise<ShapeError>("attention: ", name, " has ", what, " ", got, "; expected ", wanted,
                        " as in ", like, ".", shapes());
  };
  expect("k", "batch", k4.extent[0], q4.extent[0], "q");
  expect("v", "batch", v4.extent[0], q4.extent[0], "q");
  expect("out", "batch", o4.extent[0], q4.extent[0], "q");
  expect("v", "heads", v4.extent[1], k4.extent[1], "k");
  expect("out", "heads", o4.extent[1], q4.extent[1], "q");
  expect("v", "seqlen_kv", v4.extent[2], k4.extent[2], "k");
  expect("out", "seqlen_q", o4.extent[2], q4.extent[2], "q");
  expect("k", "head_dim", k4.extent[3], q4.extent[3], "q");
  expect("out", "head_dim", o4.extent[3], v4.extent[3], "v");
  std::int64_t const heads_q = q4.extent[1];
  std::int64_t const heads_kv = k4.extent[1];
  if (heads_q != 0 && (heads_kv == 0 || heads_q % heads_kv != 0))
    raise<ShapeError>("attention: q has ", heads_q, " heads; expected a multiple of the ", heads_kv,
                      " heads of k and v.", shapes());
  if (!std::isfinite(options.softmax_scale))
    raise<Error>("attention: softmax_scale is ", options.softmax_scale,
                 "; expected a finite number, 0 for 1/sqrt(d)");

  abi::AttentionArgs g{};
  g.q = rq.data;
  g.k = rk.data;
  g.v = rv.data;
  g.out = ro.data;
  g.type = dtype_of<T>;
  g.batch = q4.extent[0];
  g.heads_q = heads_q;
  g.heads_kv = heads_kv;
  g.seqlen_q = q4.extent[2];
  g.seqlen_kv = k4.extent[2];
  g.head_dim = q4.extent[3];
  g.head_dim_v = v4.extent[3];
  for (int r = 0; r < 4; ++r) {
    g.q_stride[r] = q4.stride[r];
    g.k_stride[r] = k4.stride[r];
    g.v_stride[r] = v4.stride[r];
    g.out_stride[r] = o4.stride[r];
  }
  g.softmax_scale = options.softmax_scale != 0 ? options.softmax_scale
                    : g.head_dim > 0           ? 1.0 / std::sqrt(static_cast<double>(g.head_dim))
                                               : 1.0;
  g.causal = options.causal;
  g.causal_alignment = options.causal_alignment;

  if constexpr (is_present<Lse>) {
    check_output<Exec>("attention", "lse", lse);
    check_extents("attention", "lse", lse);
    static_assert(rank_of<Lse> == rank - 1,
                  "attikos::attention: lse is out without its last dimension");
    static_assert(std::is_same_v<element_t<Lse>, Acc>,
                  "attikos::attention: lse is double for double inputs and float for the others");
    auto const rl = to_ref(lse);
    for (int r = 0; r < rank - 1; ++r)
      if (rl.extent[r] != rq.extent[r])
        raise<ShapeError>("attention: lse is ", describe(rl),
                          "; expected the extents of q without head_dim.", shapes());
    g.lse = rl.data;
    g.lse_stride[0] = rank == 4 ? rl.stride[0] : 0;
    g.lse_stride[1] = rl.stride[rank - 3];
    g.lse_stride[2] = rl.stride[rank - 2];
  }
  auto const extra = find_extra<Lengths>(extras...);
  if constexpr (is_present<decltype(extra)>) {
    char const* const what = rank == 4 ? "sequence of the batch" : "entry of dimension 0";
    auto const lq = lengths_ref<Exec>("attention", "lengths of q", extra.q, rq.extent[0], what);
    auto const lk = lengths_ref<Exec>("attention", "lengths of kv", extra.kv, rk.extent[0], what);
    g.lengths_q = lq.data;
    g.lengths_kv = lk.data;
    // Rank 3: dimension 0 is what the kernels call heads.
    g.lengths_q_stride[rank == 4 ? 0 : 1] = lq.stride[0];
    g.lengths_kv_stride[rank == 4 ? 0 : 1] = lk.stride[0];
  }
  return g;
}

/// One (batch, head) of a problem as kernels walk through it: blocks, clamped lengths, visible
/// keys.
template <class T>
struct AttentionHead {
  Block<T const> q, k, v;
  Block<T> out;
  std::int64_t len_q, len_kv;
  std::int64_t diagonal;  ///< query i sees keys j ≤ i + diagonal

  KOKKOS_INLINE_FUNCTION AttentionHead(abi::AttentionArgs const& g, std::int64_t b,
                                       std::int64_t h) {
    std::int64_t const hk = h / (g.heads_q / g.heads_kv);
    auto const base = [&](auto* p, std::int64_t const(&stride)[4], std::int64_t head) {
      return p + b * stride[0] + head * stride[1];
    };
    q = {base(static_cast<T const*>(g.q), g.q_stride, h), g.q_stride[2], g.q_stride[3]};
    k = {base(static_cast<T const*>(g.k), g.k_stride, hk), g.k_stride[2], g.k_stride[3]};
    v = {base(static_cast<T const*>(g.v), g.v_stride, hk), g.v_stride[2], g.v_stride[3]};
    out = {base(static_cast<T*>(g.out), g.out_stride, h), g.out_stride[2], g.out_stride[3]};
    auto const clamp = [](std::int64_t x, std::int64_t high) {
      return x < 0 ? 0 : (x > high ? high : x);
    };
    len_q = g.seqlen_q;
    len_kv = g.seqlen_kv;
    if (g.lengths_q != nullptr) {
      len_q = clamp(g.lengths_q[b * g.lengths_q_stride[0] + h * g.lengths_q_stride[1]], g.seqlen_q);
      len_kv = clamp(g.lengths_kv[b * g.lengths_kv_stride[0] + hk * g.lengths_kv_stride[1]],
                     g.seqlen_kv);
    }
    diagonal = !g.causal                                             ? len_kv
               : g.causal_alignment == CausalAlignment::bottom_right ? len_kv - len_q
                                                                     : 0;
  }

  /// Number of leading keys that query i sees.
  KOKKOS_INLINE_FUNCTION std::int64_t visible(std::int64_t i) const {
    if (i >= len_q) return 0;
    std::int64_t const n = i + diagonal + 1;
    return n < 0 ? 0 : (n > len_kv ? len_kv : n);
  }
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
