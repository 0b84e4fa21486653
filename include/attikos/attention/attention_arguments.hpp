// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From tensors and options to checked kernel arguments of attention.
#pragma once

#include <attikos/attention/attention_head.hpp>
#include <attikos/attention/attention_options.hpp>
#include <attikos/attention/attention_scores.hpp>
#include <attikos/attention/attention_term_arguments.hpp>
#include <attikos/core/to_abi.hpp>
#include <cmath>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

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

/// Element types of inputs and output that attention takes.
template <class T, class Out>
constexpr bool attention_types_supported() {
  if constexpr (std::is_same_v<T, float8_e4m3> || std::is_same_v<T, float8_e5m2>) {
    return std::is_same_v<Out, float> || std::is_same_v<Out, float16> ||
           std::is_same_v<Out, bfloat16>;
  } else {
    return std::is_same_v<T, Out> && (std::is_same_v<T, double> || std::is_same_v<T, float> ||
                                      std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>);
  }
}

/// How the sequences of a call are stored.
template <class... Extras>
struct AttentionStorage {
  using Cu = decltype(find_extra<CuSeqlens>(std::declval<Extras const&>()...));
  using Pages = decltype(find_extra<Paged>(std::declval<Extras const&>()...));
  static constexpr bool packed_q = is_present<Cu>;
  static constexpr bool paged = is_present<Pages>;
  template <class C>
  static constexpr bool packed_kv_of() {
    if constexpr (is_present<C>) {
      return is_present<decltype(C::kv)>;
    } else {
      return false;
    }
  }
  static constexpr bool packed_kv = packed_kv_of<Cu>();
};

/// Checks everything the host can see of an operation on q, k, v and a tensor like out, and fills
/// the arguments. `lse` is a tensor or Absent.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out, class Lse,
          class... Extras>
abi::AttentionArgs attention_arguments(char const* operation, Q const& q, K const& k, V const& v,
                                       Out const& out, Lse const& lse,
                                       AttentionOptions const& options, Extras const&... extras) {
  using T = element_t<Q>;
  using Acc = AttentionAccumulator<T>;
  using Storage = AttentionStorage<Extras...>;
  constexpr int rank = rank_of<Q>;
  constexpr int rank_kv = rank_of<K>;
  check_tensor<Exec, Q>();
  check_tensor<Exec, K>();
  check_tensor<Exec, V>();
  check_tensor<Exec, Out>();
  static_assert(rank == 3 || rank == 4,
                "attikos::attention: q has rank 4 [batch, heads, seqlen, head_dim] or 3 with the "
                "first two joined");
  static_assert(rank_of<Out> == rank, "attikos::attention: q and out have one rank");
  static_assert(rank_of<V> == rank_kv, "attikos::attention: k and v have one rank");
  static_assert(std::is_same_v<T, element_t<K>> && std::is_same_v<T, element_t<V>>,
                "attikos::attention: q, k and v have one element type");
  static_assert(
      attention_types_supported<T, element_t<Out>>(),
      "attikos::attention: q, k, v and out are all double, float, float16 or bfloat16, or "
      "q, k, v are float8 and out is float, float16 or bfloat16");
  static_assert(!Storage::packed_q || rank == 3,
                "attikos::attention: packed q is [heads, total, head_dim]");
  static_assert(!Storage::paged || rank_kv == 4,
                "attikos::attention: paged k is [num_pages, heads_kv, page_size, head_dim]");
  static_assert(!(Storage::paged && Storage::packed_kv),
                "attikos::attention: keys are packed or paged, not both: cu_seqlens(q, none)");
  static_assert(Storage::packed_kv
                    ? rank_kv == 3
                    : (Storage::packed_q || Storage::paged ? rank_kv == 4 : rank_kv == rank),
                "attikos::attention: k has the rank of q; packed k is [heads_kv, total, head_dim], "
                "and packed q goes with packed, padded rank-4 or paged k");
  check_extents(operation, "q", q);
  check_extents(operation, "k", k);
  check_extents(operation, "v", v);
  check_extents(operation, "out", out);
  if (options.dropout_p != 0)
    raise<UnsupportedError>(operation, ": dropout_p is ", options.dropout_p,
                            "; expected 0, dropout is not offered");

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
      raise<ShapeError>(operation, ": ", name, " has ", what, " ", got, "; expected ", wanted,
                        " as in ", like, ".", shapes());
  };
  abi::AttentionArgs g{};
  g.batch = q4.extent[0];
  auto const cu = find_extra<CuSeqlens>(extras...);
  if constexpr (Storage::packed_q) {
    g.cu_seqlens_q = offsets_ref<Exec>(operation, "cu_seqlens of q", cu.q);
    g.batch = extent_of(cu.q, 0) - 1;
    if constexpr (Storage::packed_kv) {
      g.cu_seqlens_kv = offsets_ref<Exec>(operation, "cu_seqlens of kv", cu.kv);
      if (extent_of(cu.kv, 0) != extent_of(cu.q, 0))
        raise<ShapeError>(operation, ": cu_seqlens of kv has ", extent_of(cu.kv, 0),
                          " entries; expected ", extent_of(cu.q, 0), " as for q");
    }
  }
  char const* const kv_dimension = Storage::paged ? "num_pages" : "batch";
  if constexpr (!Storage::paged && !Storage::packed_kv) {
    if (Storage::packed_q && k4.extent[0] != g.batch)
      raise<ShapeError>(operation, ": k has batch ", k4.extent[0], "; expected ", g.batch,
                        ", one per sequence of cu_seqlens.", shapes());
    if (!Storage::packed_q) expect("k", "batch", k4.extent[0], q4.extent[0], "q");
  }
  if (Storage::paged || Storage::packed_q) {
    expect("v", kv_dimension, v4.extent[0], k4.extent[0], "k");
  } else {
    expect("v", "batch", v4.extent[0], q4.extent[0], "q");
  }
  expect("out", "batch", o4.extent[0], q4.extent[0], "q");
  expect("v", "heads", v4.extent[1], k4.extent[1], "k");
  expect("out", "heads", o4.extent[1], q4.extent[1], "q");
  expect("v", Storage::paged ? "page_size" : "seqlen_kv", v4.extent[2], k4.extent[2], "k");
  expect("out", "seqlen_q", o4.extent[2], q4.extent[2], "q");
  expect("k", "head_dim", k4.extent[3], q4.extent[3], "q");
  expect("out", "head_dim", o4.extent[3], v4.extent[3], "v");
  std::int64_t const heads_q = q4.extent[1];
  std::int64_t const heads_kv = k4.extent[1];
  if (heads_q != 0 && (heads_kv == 0 || heads_q % heads_kv != 0))
    raise<ShapeError>(operation, ": q has ", heads_q, " heads; expected a multiple of the ",
                      heads_kv, " heads of k and v.", shapes());

  g.q = rq.data;
  g.k = rk.data;
  g.v = rv.data;
  g.out = const_cast<void*>(static_cast<void const*>(ro.data));
  g.type = dtype_of<T>;
  g.type_out = dtype_of<element_t<Out>>;
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
  auto const pages = find_extra<Paged>(extras...);
  if constexpr (Storage::paged) {
    auto const table =
        page_table_ref<Exec>(operation, pages, g.batch, "k", k4.extent[0], k4.extent[2]);
    g.page_table = table.data;
    g.page_table_stride[0] = table.stride[0];
    g.page_table_stride[1] = table.stride[1];
    g.page_size = pages.page_size;
    g.num_pages = k4.extent[0];
    g.seqlen_kv = table.extent[1] * pages.page_size;
  }
  score_option_arguments(operation, g, options);

  if constexpr (is_present<Lse>) {
    check_extents(operation, "lse", lse);
    static_assert(rank_of<Lse> == rank - 1,
                  "attikos::attention: lse is out without its last dimension");
    static_assert(std::is_same_v<element_t<Lse>, Acc>,
                  "attikos::attention: lse is double for double inputs and float for the others");
    auto const rl = to_ref(lse);
    for (int r = 0; r < rank - 1; ++r)
      if (rl.extent[r] != rq.extent[r])
        raise<ShapeError>(operation, ": lse is ", describe(rl),
                          "; expected the extents of q without head_dim.", shapes());
    g.lse = const_cast<void*>(static_cast<void const*>(rl.data));
    g.lse_stride[0] = rank == 4 ? rl.stride[0] : 0;
    g.lse_stride[1] = rl.stride[rank - 3];
    g.lse_stride[2] = rl.stride[rank - 2];
  }
  auto const extra = find_extra<Lengths>(extras...);
  if constexpr (is_present<decltype(extra)>) {
    // Rank 3 without cu_seqlens: dimension 0 is what the kernels call heads.
    constexpr bool joined = rank == 3 && !Storage::packed_q;
    std::int64_t const entries = joined ? heads_q : g.batch;
    char const* const what = joined ? "entry of dimension 0" : "sequence of the batch";
    if constexpr (is_present<decltype(extra.q)>) {
      static_assert(
          !Storage::packed_q,
          "attikos::attention: packed q has its lengths in cu_seqlens: lengths(none, kv)");
      auto const lq = lengths_ref<Exec>(operation, "lengths of q", extra.q, entries, what);
      g.lengths_q = lq.data;
      g.lengths_q_stride[joined ? 1 : 0] = lq.stride[0];
    }
    static_assert(!Storage::packed_kv,
                  "attikos::attention: packed k and v have their lengths in cu_seqlens");
    auto const lk = lengths_ref<Exec>(operation, "lengths of kv", extra.kv, entries, what);
    g.lengths_kv = lk.data;
    g.lengths_kv_stride[joined ? 1 : 0] = lk.stride[0];
  }
  score_term_arguments<Exec>(operation, g, shapes(), extras...);
  static_assert(!is_present<decltype(find_extra<Descale>(extras...))> || sizeof(T) == 1,
                "attikos::attention: descale goes with float8 tensors");
  return g;
}

/// The functors of a call, Absent where there is none.
template <class... Extras>
auto pair_functors(Extras const&... extras) {
  auto const s = find_extra<Score>(extras...);
  auto const w = find_extra<Weight>(extras...);
  auto const functor = [](auto const& wrapper) {
    if constexpr (is_present<decltype(wrapper)>) {
      return wrapper.functor;
    } else {
      return Absent{};
    }
  };
  return PairFunctors<decltype(functor(s)), decltype(functor(w))>{functor(s), functor(w)};
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
