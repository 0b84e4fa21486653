// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From tensors and options to checked kernel arguments of attention.
#pragma once

#include <array>
#include <attikos/attention/attention_head.hpp>
#include <attikos/attention/attention_options.hpp>
#include <attikos/attention/attention_scores.hpp>
#include <attikos/attention/attention_term_arguments.hpp>
#include <attikos/core/workspace.hpp>
#include <cmath>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

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

/// What a call of an operation on q, k, v and a tensor like out was given. Absent is what was not.
struct AttentionTensors {
  AnyTensor q, k, v, out, lse;
  AnyTensor cu_q, cu_kv, page_table;
  std::int64_t page_size = 0;
  AnyTensor lengths_q, lengths_kv;
  ScoreTerms terms;
  AnyTensor workspace;

  bool packed_q() const { return cu_q.given(); }
  bool packed_kv() const { return cu_kv.given(); }
  bool paged() const { return page_table.given(); }
  /// What messages show of the tensors.
  std::string shapes() const {
    return " q is " + describe(q) + ", k is " + describe(k) + ", v is " + describe(v) +
           ", out is " + describe(out) + ".";
  }
  /// What is read, forward and backward.
  std::array<Argument, 16> inputs() const {
    return {{{"q", q},
             {"k", k},
             {"v", v},
             {"cu_seqlens of q", cu_q},
             {"cu_seqlens of kv", cu_kv},
             {"page table", page_table},
             {"lengths of q", lengths_q},
             {"lengths of kv", lengths_kv},
             {"bias", terms.bias},
             {"mask", terms.mask},
             {"block mask", terms.block_mask},
             {"alibi", terms.alibi},
             {"sinks", terms.sinks},
             {"descale of q", terms.descale_q},
             {"descale of k", terms.descale_k},
             {"descale of v", terms.descale_v}}};
  }
};

/// Checks the extents of q, k, v and out against one another; they come with four dimensions.
inline void check_attention_extents(char const* operation, AttentionTensors const& t,
                                    AnyTensor const& q, AnyTensor const& k, AnyTensor const& v,
                                    AnyTensor const& out, std::int64_t batch) {
  auto const expect = [&](char const* name, char const* what, std::int64_t got, std::int64_t wanted,
                          char const* like) {
    if (got != wanted)
      raise<ShapeError>(operation, ": ", name, " has ", what, " ", got, "; expected ", wanted,
                        " as in ", like, ".", t.shapes());
  };
  if (!t.paged() && !t.packed_kv()) {
    if (t.packed_q() && k.extent[0] != batch)
      raise<ShapeError>(operation, ": k has batch ", k.extent[0], "; expected ", batch,
                        ", one per sequence of cu_seqlens.", t.shapes());
    if (!t.packed_q()) expect("k", "batch", k.extent[0], q.extent[0], "q");
  }
  if (t.paged() || t.packed_q()) {
    expect("v", t.paged() ? "num_pages" : "batch", v.extent[0], k.extent[0], "k");
  } else {
    expect("v", "batch", v.extent[0], q.extent[0], "q");
  }
  expect("out", "batch", out.extent[0], q.extent[0], "q");
  expect("v", "heads", v.extent[1], k.extent[1], "k");
  expect("out", "heads", out.extent[1], q.extent[1], "q");
  expect("v", t.paged() ? "page_size" : "seqlen_kv", v.extent[2], k.extent[2], "k");
  expect("out", "seqlen_q", out.extent[2], q.extent[2], "q");
  expect("k", "head_dim", k.extent[3], q.extent[3], "q");
  expect("out", "head_dim", out.extent[3], v.extent[3], "v");
  if (q.extent[1] != 0 && (k.extent[1] == 0 || q.extent[1] % k.extent[1] != 0))
    raise<ShapeError>(operation, ": q has ", q.extent[1], " heads; expected a multiple of the ",
                      k.extent[1], " heads of k and v.", t.shapes());
}

/// Lengths of the sequences, checked and copied.
inline void length_arguments(char const* operation, abi::AttentionArgs& g,
                             AttentionTensors const& t) {
  if (!t.lengths_q.given() && !t.lengths_kv.given()) return;
  // Rank 3 without cu_seqlens: dimension 0 is what the kernels call heads.
  bool const joined = t.q.rank == 3 && !t.packed_q();
  std::int64_t const entries = joined ? g.heads_q : g.batch;
  char const* const what = joined ? "entry of dimension 0" : "sequence of the batch";
  if (t.lengths_q.given()) {
    auto const lq = lengths_ref(operation, "lengths of q", t.lengths_q, entries, what);
    g.lengths_q = lq.data;
    g.lengths_q_stride[joined ? 1 : 0] = lq.stride[0];
  }
  if (t.lengths_kv.given()) {
    auto const lk = lengths_ref(operation, "lengths of kv", t.lengths_kv, entries, what);
    g.lengths_kv = lk.data;
    g.lengths_kv_stride[joined ? 1 : 0] = lk.stride[0];
  }
}

/// Checks everything the host can see of an operation on q, k, v and a tensor like out, and fills
/// the arguments.
inline abi::AttentionArgs attention_arguments(char const* operation, AttentionTensors const& t,
                                              AttentionOptions const& options) {
  check_extents(operation, "q", t.q);
  check_extents(operation, "k", t.k);
  check_extents(operation, "v", t.v);
  check_extents(operation, "out", t.out);
  if (options.dropout_p != 0)
    raise<UnsupportedError>(operation, ": dropout_p is ", options.dropout_p,
                            "; expected 0, dropout is not offered");
  // [batch·heads, seqlen, d] counts as batch 1: the ratio of query to key heads survives the
  // joining.
  AnyTensor const q = t.q.with_rank(4), k = t.k.with_rank(4), v = t.v.with_rank(4),
                  out = t.out.with_rank(4);
  auto const shapes = [&] { return t.shapes(); };
  abi::AttentionArgs g{};
  g.batch = q.extent[0];
  if (t.packed_q()) {
    g.cu_seqlens_q = offsets_ref(operation, "cu_seqlens of q", t.cu_q);
    g.batch = t.cu_q.extent[0] - 1;
    if (t.packed_kv()) {
      g.cu_seqlens_kv = offsets_ref(operation, "cu_seqlens of kv", t.cu_kv);
      if (t.cu_kv.extent[0] != t.cu_q.extent[0])
        raise<ShapeError>(operation, ": cu_seqlens of kv has ", t.cu_kv.extent[0],
                          " entries; expected ", t.cu_q.extent[0], " as for q");
    }
  }
  check_attention_extents(operation, t, q, k, v, out, g.batch);

  g.q = q.data;
  g.k = k.data;
  g.v = v.data;
  g.out = out.output();
  g.type = q.type;
  g.type_out = out.type;
  g.heads_q = q.extent[1];
  g.heads_kv = k.extent[1];
  g.seqlen_q = q.extent[2];
  g.seqlen_kv = k.extent[2];
  g.head_dim = q.extent[3];
  g.head_dim_v = v.extent[3];
  for (int r = 0; r < 4; ++r) {
    g.q_stride[r] = q.stride[r];
    g.k_stride[r] = k.stride[r];
    g.v_stride[r] = v.stride[r];
    g.out_stride[r] = out.stride[r];
  }
  if (t.paged()) {
    auto const table = page_table_ref(operation, t.page_table, t.page_size, g.batch, "k",
                                      k.extent[0], k.extent[2]);
    g.page_table = table.data;
    g.page_table_stride[0] = table.stride[0];
    g.page_table_stride[1] = table.stride[1];
    g.page_size = t.page_size;
    g.num_pages = k.extent[0];
    g.seqlen_kv = table.extent[1] * t.page_size;
  }
  score_option_arguments(operation, g, options);
  if (t.lse.given()) {
    check_extents(operation, "lse", t.lse);
    for (int r = 0; r < t.lse.rank; ++r)
      if (t.lse.extent[r] != t.q.extent[r])
        raise<ShapeError>(operation, ": lse is ", describe(t.lse),
                          "; expected the extents of q without head_dim.", t.shapes());
    AnyTensor const lse = t.lse.with_rank(3);
    g.lse = lse.output();
    for (int r = 0; r < 3; ++r) g.lse_stride[r] = lse.stride[r];
  }
  length_arguments(operation, g, t);
  score_term_arguments(operation, g, shapes, t.terms);
  return g;
}

/// The same of attention() and decode(), which write out and lse.
inline abi::AttentionArgs attention_forward_arguments(char const* operation,
                                                      AttentionTensors const& t,
                                                      AttentionOptions const& options) {
  abi::AttentionArgs const g = attention_arguments(operation, t, options);
  check_outputs(operation, {{"out", t.out}, {"lse", t.lse}, {"workspace", t.workspace}}, {},
                t.inputs());
  return g;
}

/// The tensors of a call without their static types, which are checked here. `lse` is a tensor or
/// Absent.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out, class Lse,
          class... Extras>
AttentionTensors attention_tensors(Q const& q, K const& k, V const& v, Out const& out,
                                   Lse const& lse, Extras const&... extras) {
  using T = element_t<Q>;
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
  static_assert(!is_present<decltype(find_extra<Descale>(extras...))> || sizeof(T) == 1,
                "attikos::attention: descale goes with float8 tensors");
  AttentionTensors t;
  t.q = any_tensor(q);
  t.k = any_tensor(k);
  t.v = any_tensor(v);
  t.out = any_tensor(out);
  t.lse = any_tensor(lse);
  if constexpr (is_present<Lse>) {
    static_assert(rank_of<Lse> == rank - 1,
                  "attikos::attention: lse is out without its last dimension");
    static_assert(std::is_same_v<element_t<Lse>, AttentionAccumulator<T>>,
                  "attikos::attention: lse is double for double inputs and float for the others");
  }
  auto const cu = find_extra<CuSeqlens>(extras...);
  if constexpr (Storage::packed_q) {
    t.cu_q = any_offsets<Exec>(cu.q);
    t.cu_kv = any_offsets<Exec>(cu.kv);
  }
  auto const pages = find_extra<Paged>(extras...);
  if constexpr (Storage::paged) {
    t.page_table = any_page_table<Exec>(pages.table);
    t.page_size = pages.page_size;
  }
  auto const lengths = find_extra<Lengths>(extras...);
  if constexpr (is_present<decltype(lengths)>) {
    static_assert(!is_present<decltype(lengths.q)> || !Storage::packed_q,
                  "attikos::attention: packed q has its lengths in cu_seqlens: lengths(none, kv)");
    static_assert(!Storage::packed_kv,
                  "attikos::attention: packed k and v have their lengths in cu_seqlens");
    t.lengths_q = any_lengths<Exec>(lengths.q);
    t.lengths_kv = any_lengths<Exec>(lengths.kv);
  }
  t.terms = score_terms<Exec>(extras...);
  t.workspace = any_workspace(extras...);
  return t;
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
  auto const blocks = find_extra<BlockMask>(extras...);
  if constexpr (is_present<decltype(blocks)>) {
    return PairFunctors<decltype(functor(s)), decltype(functor(w)), decltype(blocks.predicate)>{
        functor(s), functor(w), blocks.predicate};
  } else {
    return PairFunctors<decltype(functor(s)), decltype(functor(w))>{functor(s), functor(w)};
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
