// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// decode(): attention of few queries over a long cache, which is split among teams.
#pragma once

#include <attikos/abi/decode.hpp>
#include <attikos/core/dispatch/dispatch.hpp>
#include <attikos/core/explain.hpp>
#include <attikos/decode/decode_cuda.hpp>
#include <attikos/decode/decode_options.hpp>
#include <attikos/decode/decode_split.hpp>
#include <attikos/decode/merge_states.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
concept DecodeExtra = is_any_wrapper<T, Lengths, CuSeqlens, Paged, Bias, Mask, Alibi, Sinks,
                                     Descale, Score, Weight, Workspace>;

inline AttentionOptions attention_options(DecodeOptions const& from) {
  AttentionOptions to;
  ATTIKOS_SCORE_OPTIONS(ATTIKOS_CXX_OPTION_COPY)
  to.causal_alignment = from.causal_alignment;
  return to;
}

/// Joins the partial states of a problem, and its sinks.
template <class Out, class Exec, class Acc>
void decode_merge(char const* operation, Exec const& exec, abi::AttentionArgs const& g,
                  std::int64_t splits, Acc const* partial_out, Acc const* partial_lse) {
  std::int64_t const dv = g.head_dim_v, row = g.seqlen_q, head = row * g.heads_q,
                     batch = decode_batch(g), all = head * batch;
  SplitStates<Acc, Acc> const states{
      {partial_out,
       {splits, batch, g.heads_q, g.seqlen_q, dv},
       {all * dv, head * dv, row * dv, dv, 1}},
      {partial_lse, {splits, batch, g.heads_q, g.seqlen_q}, {all, head, row, 1}}};
  TensorRef<Out, 4> out{static_cast<Out*>(g.out), {batch, g.heads_q, g.seqlen_q, dv}, {}};
  TensorRef<Acc, 3> lse{static_cast<Acc*>(g.lse), {batch, g.heads_q, g.seqlen_q}, {}};
  for (int r = 0; r < 4; ++r) out.stride[r] = g.out_stride[r];
  for (int r = 0; r < 3; ++r) lse.stride[r] = g.lse_stride[r];
  using Row = MergeStatesRow<Acc, SplitStates<Acc, Acc>, Out, Acc>;
  Row merged{states, out, lse, {g.type_sinks, g.sinks, g.sinks_stride}};
  merged.by_neighbors = !is_host_space<Exec> && states.template moves_at_once<Row::width>() &&
                        tensor_moves_at_once<Row::width>(out);
  launch_rows(exec, operation, merged, all);
}

/// Parts of the cache that a call asks for, 0 for any number. On hosts those that are chosen do not
/// depend on the batch.
template <ExecutionSpace Exec>
constexpr std::int64_t decode_splits_wanted(DecodeOptions const& options) {
  bool const fixed = options.determinism == Determinism::batch_invariant && options.splits == 0;
  return fixed && multiplies_in_fragments<Exec> ? 16 : options.splits;
}

/// Bytes that suffice for whichever kernel runs; a caller's workspace has to hold as many.
template <class T, class Out, ExecutionSpace Exec>
std::size_t decode_workspace_bytes(Exec const& exec, abi::DecodeArgs const& g) {
  std::size_t bytes = 0;
  if (decode_batch(g) != 0 && g.heads_q != 0 && g.seqlen_q != 0)
    bytes = decode_bytes<AttentionAccumulator<T>>(g, decode_plan<Exec, T>(exec, g, g.splits));
  [&]<class... Kernels>(KernelList<Kernels...>) {
    ((bytes = std::max(bytes, Kernels::workspace_bytes(g, exec))), ...);
  }(typename Specializations<op::Decode, Exec, T, Out>::kernels{});
  return bytes;
}

/// Explains (log given) or runs (log null) arguments that were checked, in the words of
/// `operation`. `memory`: workspace(view), if any.
template <class T, class O, ExecutionSpace Exec, class Functors, class... Workspaces>
void decode_checked(char const* operation, Exec const& exec, abi::DecodeArgs& g, char const* kernel,
                    Functors const& functors, Explanation* log, Workspaces const&... memory) {
  using Acc = AttentionAccumulator<T>;
  // A functor can only be compiled into the portable kernel.
  constexpr bool builtin = !Functors::has_score && !Functors::has_weight;
  using Kernels =
      std::conditional_t<builtin, typename Specializations<op::Decode, Exec, T, O>::kernels,
                         KernelList<>>;
  bool const done = choose_kernel(
      operation, Kernels{}, kernel, g, exec, log, [&]<class Kernel>(std::type_identity<Kernel>) {
        if (log != nullptr) return;
        WorkspaceLease const lease =
            get_workspace(operation, exec, decode_workspace_bytes<T, O>(exec, g), memory...);
        g.workspace = lease.data;
        if constexpr (requires { Kernel::run(g, exec, operation); })
          Kernel::run(g, exec, operation);
        else
          Kernel::run(g, exec);
      });
  if (done || decode_batch(g) == 0 || g.heads_q == 0 || g.seqlen_q == 0) return;
  DecodePlan const plan = decode_plan<Exec, T>(exec, g, g.splits);
  std::size_t const bytes = decode_workspace_bytes<T, O>(exec, g);
  if (log != nullptr) {
    if constexpr (rounds_attention_weights<Exec, T, O, Functors>)
      log->instructions = FragmentsFor<Exec, ForwardFactor<Exec, T, O, Functors>>::name;
    return;
  }
  WorkspaceLease const lease = get_workspace(operation, exec, bytes, memory...);
  auto* const partial_lse = static_cast<Acc*>(lease.data);
  auto* const partial_out = partial_lse + plan.splits * decode_batch(g) * g.heads_q * g.seqlen_q;
  decode_splits<T, O>(operation, exec, g, functors, plan, partial_out, partial_lse);
  decode_merge<O, Exec, Acc>(operation, exec, g, plan.splits, partial_out, partial_lse);
}

/// Checks, then explains (log given) or runs (log null). `memory`: workspace(view), if any.
template <class T, class O, ExecutionSpace Exec, class Functors, class... Workspaces>
void decode_run(Exec const& exec, AttentionTensors const& t, DecodeOptions const& options,
                Functors const& functors, Explanation* log, Workspaces const&... memory) {
  abi::DecodeArgs g{attention_forward_arguments("decode", t, attention_options(options))};
  g.splits = decode_splits_wanted<Exec>(options);
  if (options.splits < 0)
    raise<Error>("decode: splits is ", options.splits, "; expected a number of parts, 0 to choose");
  if (std::max(g.head_dim, g.head_dim_v) > (std::int64_t{1} << 26))
    raise<UnsupportedError>("decode: head_dim is ", std::max(g.head_dim, g.head_dim_v),
                            "; expected at most 67108864");
  decode_checked<T, O>("decode", exec, g, options.kernel, functors, log, memory...);
}

/// The same for a call with the types that the user wrote. `lse` is a tensor or Absent.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out, class Lse,
          class... Extras>
void decode_dispatch(Exec const& exec, Q const& q, K const& k, V const& v, Out const& out,
                     Lse const& lse, DecodeOptions const& options, Explanation* log,
                     Extras const&... extras) {
  static_assert(rank_of<Q> == (AttentionStorage<Extras...>::packed_q ? 3 : 4),
                "attikos::decode: q is [batch, heads_q, seqlen_q, head_dim], or packed [heads_q, "
                "total_q, head_dim] with cu_seqlens(q, none) or cu_seqlens(q, kv)");
  check_writable(out);
  if constexpr (is_present<Lse>) check_writable(lse);
  auto const tensors = attention_tensors<Exec>(q, k, v, out, lse, extras...);
  with_workspace(
      [&](auto const&... memory) {
        decode_run<element_t<Q>, element_t<Out>>(exec, tensors, options, pair_functors(extras...),
                                                 log, memory...);
      },
      extras...);
}

}  // namespace detail

/// Attention of one or a few queries per sequence over a long cache of keys and values: what
/// attention() computes, with the cache split among teams and the parts merged by their
/// log-sum-exp.
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param q        [batch, heads_q, seqlen_q, d]; packed: [heads_q, total_q, d]
/// \param k        [batch, heads_kv, seqlen_max, d]; paged: [num_pages, heads_kv, page_size, d];
///                 packed: [heads_kv, total_kv, d]; heads_q is a multiple of heads_kv
/// \param v        as k with dv in place of d
/// \param out      as q with dv in place of d
/// \param lse      as q without d; may be left out
/// \param options  scale, softcap, causal mask, window, splits, determinism, kernel (see
///                 DecodeOptions)
/// \param extras   in any order: lengths(none, kv): int32 [batch], positions of the cache in use;
///                 lengths(q, kv); cu_seqlens(q, none): packed queries over a padded or paged
///                 cache; cu_seqlens(q, kv): a packed one too; paged(table, page_size); bias(view);
///                 mask(view); alibi(slopes); sinks(view); descale(q, k, v); score(functor);
///                 weight(functor); workspace(view): at least decode_workspace_size() bytes
///
/// Everything means what it means for attention(), in whose place decode() may be called whatever
/// the number of queries, but for rank 3 without cu_seqlens. Query heads that share a key head are
/// worked on together: keys and values are read once for all of them, by a host in place where they
/// are up to 16 rows and features are contiguous. Splits past a sequence's length cost next to
/// nothing. Sinks join when the parts are merged.
///
/// Which kernel a call goes to, and why not to the others, is what explain() tells;
/// docs/kernels.md has their conditions. `decode/sm80_mma_*` rounds weights to the type of q before
/// the product with values, for float8_e4m3 to float16; so does the portable kernel for a result of
/// 16 bits on a device's matrix instructions, but not `decode/sm80_simt_*`.
///
/// Types as attention()'s; partial results in float, double for double, in the workspace (the
/// caller's, or the instance's pool). Determinism: run to run; on a host splits follow from the
/// length of the cache alone (seqlen_max, max_pages·page_size or total_kv), so that results depend
/// neither on the number of threads nor on the batch. On a device `determinism` batch_invariant, or
/// `splits` given, makes bits independent of the rest of the batch (but for the mean number of
/// queries where those are packed); those of the CUDA kernels, which cut up what a sequence's
/// queries see, then do not depend on the size of the cache either. Throws ShapeError, StrideError,
/// Error, UnsupportedError, ResourceError before anything is launched or written.
///
/// Source: T. Dao et al., "Flash-Decoding for long-context inference", 2023; N. Shazeer,
/// arXiv:1911.02150, and J. Ainslie et al., arXiv:2305.13245, for shared key heads.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out,
          TensorLike Lse, detail::DecodeExtra... Extras>
void decode(Exec const& exec, Q const& q, K const& k, V const& v, Out const& out, Lse const& lse,
            DecodeOptions const& options = {}, Extras const&... extras) {
  detail::decode_dispatch(exec, q, k, v, out, lse, options, nullptr, extras...);
}

/// The same without the log-sum-exp.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out,
          detail::DecodeExtra... Extras>
void decode(Exec const& exec, Q const& q, K const& k, V const& v, Out const& out,
            DecodeOptions const& options = {}, Extras const&... extras) {
  detail::decode_dispatch(exec, q, k, v, out, detail::Absent{}, options, nullptr, extras...);
}

/// The same on an instance of the default execution space.
template <TensorLike Q, TensorLike K, TensorLike V, TensorLike Out, TensorLike Lse,
          detail::DecodeExtra... Extras>
void decode(Q const& q, K const& k, V const& v, Out const& out, Lse const& lse,
            DecodeOptions const& options = {}, Extras const&... extras) {
  decode(Kokkos::DefaultExecutionSpace{}, q, k, v, out, lse, options, extras...);
}

/// The same on an instance of the default execution space, without the log-sum-exp.
template <TensorLike Q, TensorLike K, TensorLike V, TensorLike Out, detail::DecodeExtra... Extras>
void decode(Q const& q, K const& k, V const& v, Out const& out, DecodeOptions const& options = {},
            Extras const&... extras) {
  decode(Kokkos::DefaultExecutionSpace{}, q, k, v, out, options, extras...);
}

/// The workspace of decode() for these tensors on `exec`, in bytes. Takes the extras of the call,
/// of which paged() and cu_seqlens() matter.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V,
          detail::DecodeExtra... Extras>
std::size_t decode_workspace_size(Exec const& exec, Q const& q, K const& k, V const& v,
                                  DecodeOptions const& options = {}, Extras const&... extras) {
  using T = element_t<Q>;
  auto const q4 = detail::any_tensor(q).with_rank(4);
  auto const k4 = detail::any_tensor(k).with_rank(4);
  abi::DecodeArgs g{};
  g.splits = std::max<std::int64_t>(detail::decode_splits_wanted<Exec>(options), 0);
  g.batch = q4.extent[0];
  g.heads_q = q4.extent[1];
  g.heads_kv = k4.extent[1];
  g.seqlen_q = q4.extent[2];
  g.seqlen_kv = k4.extent[2];
  g.head_dim = q4.extent[3];
  g.head_dim_v = detail::extent_of(v, rank_of<V> - 1);
  auto const packed = detail::find_extra<CuSeqlens>(extras...);
  if constexpr (detail::is_present<decltype(packed)>) {
    g.cu_seqlens_q =
        detail::offsets_ref("decode", "cu_seqlens of q", detail::any_offsets<Exec>(packed.q));
    g.batch = detail::extent_of(packed.q, 0) - 1;
  }
  auto const pages = detail::find_extra<Paged>(extras...);
  if constexpr (detail::is_present<decltype(pages)>)
    g.seqlen_kv = detail::extent_of(pages.table, 1) * pages.page_size;
  // The output of a float8 cache has a type of its own, which is not known here.
  if constexpr (sizeof(T) == 1)
    return std::max({detail::decode_workspace_bytes<T, float16>(exec, g),
                     detail::decode_workspace_bytes<T, bfloat16>(exec, g),
                     detail::decode_workspace_bytes<T, float>(exec, g)});
  else
    return detail::decode_workspace_bytes<T, T>(exec, g);
}

/// Which kernel decode() would run for these arguments, and why not the others. Throws what
/// decode() would throw.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out,
          detail::DecodeExtra... Extras>
Explanation explain(op::Decode, Exec const& exec, Q const& q, K const& k, V const& v,
                    Out const& out, DecodeOptions const& options = {}, Extras const&... extras) {
  Explanation result;
  detail::decode_dispatch(exec, q, k, v, out, detail::Absent{}, options, &result, extras...);
  return result;
}

/// The same on an instance of the default execution space.
template <TensorLike Q, TensorLike K, TensorLike V, TensorLike Out, detail::DecodeExtra... Extras>
Explanation explain(op::Decode tag, Q const& q, K const& k, V const& v, Out const& out,
                    DecodeOptions const& options = {}, Extras const&... extras) {
  return explain(tag, Kokkos::DefaultExecutionSpace{}, q, k, v, out, options, extras...);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
