// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// attention(): softmax(scale·Q·Kᵀ)·V.
#pragma once

#include <attikos/attention/attention_cuda.hpp>
#include <attikos/attention/attention_flash.hpp>
#include <attikos/attention/attention_small.hpp>
#include <attikos/attention/attention_split.hpp>
#include <attikos/attention/attention_unfused.hpp>
#include <attikos/attention/validate_cu_seqlens.hpp>
#include <attikos/core/dispatch/dispatch.hpp>
#include <attikos/core/explain.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
concept AttentionExtra = is_any_wrapper<T, Lengths, CuSeqlens, Paged, Bias, Mask, BlockMask, Alibi,
                                        Sinks, Descale, Score, Weight, Workspace>;

/// Checks, then explains (log given) or runs (log null). `memory`: workspace(view), if any.
template <class T, class O, ExecutionSpace Exec, class Functors, class... Workspaces>
void attention_run(Exec const& exec, AttentionTensors const& t, AttentionOptions const& options,
                   Functors const& functors, Explanation* log, Workspaces const&... memory) {
  abi::AttentionArgs const args = attention_forward_arguments("attention", t, options);
  // Specializations are flash kernels: who asks for stored scores by name gets them. A functor can
  // only be compiled into the portable kernels.
  bool const flash = options.algorithm == AttentionAlgorithm::flash;
  constexpr bool plain = !Functors::has_score && !Functors::has_weight;
  if constexpr (plain && !Functors::has_block_mask) {
    if (flash && *wanted_kernel(options.kernel) == '\0' && splits_keys<T, O>(exec, args)) {
      abi::DecodeArgs split{args};
      decode_checked<T, O>("attention", exec, split, "", functors, log, memory...);
      if (log != nullptr && demands(log->kernel.c_str(), "portable"))
        log->kernel = "portable/split";
      return;
    }
  }
  char const* const portable = portable_name(options.algorithm);
  char const* const wanted =
      demands(wanted_kernel(options.kernel), portable) ? "portable" : options.kernel;
  auto const visit = [&]<class Kernel>(std::type_identity<Kernel>) {
    // None of them takes a block mask, but each says so.
    if constexpr (!Functors::has_block_mask)
      if (log == nullptr) Kernel::run(args, exec);
  };
  using Kernels =
      std::conditional_t<plain, typename Specializations<op::Attention, Exec, T, O>::kernels,
                         KernelList<>>;
  bool const done =
      flash ? choose_kernel("attention", Kernels{}, wanted, args, exec, log, visit)
            : choose_kernel("attention", KernelList<>{}, wanted, args, exec, log, visit);
  if (done) return;
  if (log != nullptr) log->kernel = portable;
  if (log != nullptr && flash)
    log->instructions = attention_forward_instructions<Exec, T, O, Functors>(args);
  if (flash) {
    if (log == nullptr) attention_flash<T, O>(exec, args, functors);
    return;
  }
  std::size_t const bytes = attention_scores_bytes(query_groups(args), args.seqlen_q,
                                                   args.seqlen_kv, sizeof(AttentionAccumulator<T>));
  check_unfused_leagues<T, O, Functors, Exec>(args);
  if (log != nullptr) return;
  WorkspaceLease const lease = get_workspace("attention", exec, bytes, memory...);
  attention_unfused<T, O>(exec, args, functors, options.algorithm == AttentionAlgorithm::tiled,
                          lease.data);
}

/// The same for a call with the types that the user wrote. `lse` is a tensor or Absent.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out, class Lse,
          class... Extras>
void attention_dispatch(Exec const& exec, Q const& q, K const& k, V const& v, Out const& out,
                        Lse const& lse, AttentionOptions const& options, Explanation* log,
                        Extras const&... extras) {
  check_writable(out);
  if constexpr (is_present<Lse>) check_writable(lse);
  auto const tensors = attention_tensors<Exec>(q, k, v, out, lse, extras...);
  with_workspace(
      [&](auto const&... memory) {
        attention_run<element_t<Q>, element_t<Out>>(exec, tensors, options,
                                                    pair_functors(extras...), log, memory...);
      },
      extras...);
}

}  // namespace detail

/// Scaled dot-product attention: out = softmax(s)·v over the keys, where s = scale·q·kᵀ, then
/// softcap, bias, ALiBi, score functor, masks.
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param q        [batch, heads_q, seqlen_q, d], or [batch·heads_q, seqlen_q, d]; packed:
///                 [heads_q, total_q, d]
/// \param k        [batch, heads_kv, seqlen_kv, d]; heads_q is a multiple of heads_kv, each key
///                 head serving heads_q/heads_kv neighboring query heads; paged:
///                 [num_pages, heads_kv, page_size, d]
/// \param v        as k with dv in place of d
/// \param out      as q with dv in place of d
/// \param lse      as q without d: natural logarithm of Σ w·e^s over the visible keys (and the
///                 sink)
/// \param options  scale, softcap, causal mask, window, chunk, algorithm, kernel (see
///                 AttentionOptions)
/// \param extras   in any order: lengths(q, kv): int32, one per sequence (rank 3: one per entry of
///                 dimension 0); cu_seqlens(q, kv); paged(table, page_size); bias(view);
///                 mask(view); block_mask(view, predicate, shape); alibi(slopes); sinks(view);
///                 descale(q, k, v); score(functor); weight(functor); workspace(view): at least
///                 attention_workspace_size() bytes
///
/// off = len_kv − len_q of a sequence (0 with top_left). Query i sees key j if i + off −
/// window_left ≤ j ≤ i + off + window_right, j ≤ i + off where causal, i + off and j lie in one
/// chunk of attention_chunk positions, the mask is not 0, the block mask's predicate is true and
/// the weight is not 0. A pair that is not seen, or whose score is −∞, adds nothing, not even a NaN
/// of its value. Rows past len_q, and rows that see no key, give out 0 and lse −∞; what lies in
/// padding and in pages past a length is never read. Any strides, any head_dim, zero extents.
/// Outputs must not overlap one another or the inputs.
///
/// Types: q, k, v and out double, float, float16 or bfloat16; or q, k, v float8 with out float,
/// float16 or bfloat16. Scores, weights and sums in float (double for double); lse float (double
/// for double). float means IEEE float32 throughout: `compute` only allows less. Which
/// kernel a call goes to, and why not to the others, is what explain() tells; docs/kernels.md has
/// their conditions. `flash` needs no memory beyond its outputs, but where it leaves few queries
/// over many keys to decode()'s kernels, which keep partial results in the workspace; `tiled` and
/// `naive` store batch·heads_q·seqlen_q·seqlen_kv accumulators there (the caller's workspace, or
/// the instance's pool). Compiled kernels for 16- and 8-bit types, `flash` of bfloat16 on
/// instructions that host_isa() chose, and `flash` of heads of up to 128 features with a result of
/// 16 bits on a device's matrix instructions round weights to the type of q before the product with
/// values (of float8 to float16). Range: scores and sums of the formula as it stands must fit into
/// the accumulator, and on a device scores times log2(e); compiled kernels, which keep scores as
/// exponents of 2 relative to one that the largest may exceed, take scores up to 2^29 (double:
/// 2^60) in magnitude, and the sums of 2^16 (double: 2^64) times the values must fit. Determinism:
/// run to run, and for any number of host threads. Throws ShapeError, StrideError, Error,
/// UnsupportedError, ResourceError before anything is launched or written. Source: T. Dao et al.,
/// "FlashAttention", arXiv:2205.14135; A. Vaswani et al., arXiv:1706.03762.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out,
          TensorLike Lse, detail::AttentionExtra... Extras>
void attention(Exec const& exec, Q const& q, K const& k, V const& v, Out const& out, Lse const& lse,
               AttentionOptions const& options = {}, Extras const&... extras) {
  detail::attention_dispatch(exec, q, k, v, out, lse, options, nullptr, extras...);
}

/// The same without the log-sum-exp.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out,
          detail::AttentionExtra... Extras>
void attention(Exec const& exec, Q const& q, K const& k, V const& v, Out const& out,
               AttentionOptions const& options = {}, Extras const&... extras) {
  detail::attention_dispatch(exec, q, k, v, out, detail::Absent{}, options, nullptr, extras...);
}

/// The same on an instance of the default execution space.
template <TensorLike Q, TensorLike K, TensorLike V, TensorLike Out, TensorLike Lse,
          detail::AttentionExtra... Extras>
void attention(Q const& q, K const& k, V const& v, Out const& out, Lse const& lse,
               AttentionOptions const& options = {}, Extras const&... extras) {
  attention(Kokkos::DefaultExecutionSpace{}, q, k, v, out, lse, options, extras...);
}

/// The same on an instance of the default execution space, without the log-sum-exp.
template <TensorLike Q, TensorLike K, TensorLike V, TensorLike Out,
          detail::AttentionExtra... Extras>
void attention(Q const& q, K const& k, V const& v, Out const& out,
               AttentionOptions const& options = {}, Extras const&... extras) {
  attention(Kokkos::DefaultExecutionSpace{}, q, k, v, out, options, extras...);
}

/// Upper bound of the workspace of attention() for these tensors on an instance of the default
/// execution space or of the host's, in bytes; 0 for flash but where it splits keys. Takes the
/// extras of the call, of which paged() and cu_seqlens() matter.
template <TensorLike Q, TensorLike K, TensorLike V, detail::AttentionExtra... Extras>
std::size_t attention_workspace_size(Q const& q, K const& k, V const& v,
                                     AttentionOptions const& options = {},
                                     Extras const&... extras) {
  using T = element_t<Q>;
  auto const q4 = detail::any_tensor(q).with_rank(4);
  auto const k4 = detail::any_tensor(k).with_rank(4);
  std::int64_t seqlen_kv = k4.extent[2];
  auto const pages = detail::find_extra<Paged>(extras...);
  if constexpr (detail::is_present<decltype(pages)>)
    seqlen_kv = detail::extent_of(pages.table, 1) * pages.page_size;
  if (options.algorithm != AttentionAlgorithm::flash)
    return detail::attention_scores_bytes(q4.extent[0] * q4.extent[1], q4.extent[2], seqlen_kv,
                                          sizeof(detail::AttentionAccumulator<T>));
  if (detail::is_present<decltype(detail::find_extra<CuSeqlens>(extras...))>) return 0;
  abi::AttentionArgs g{};
  g.batch = q4.extent[0];
  g.heads_q = q4.extent[1];
  g.heads_kv = k4.extent[1];
  g.seqlen_q = q4.extent[2];
  g.seqlen_kv = seqlen_kv;
  g.head_dim = q4.extent[3];
  g.head_dim_v = detail::extent_of(v, rank_of<V> - 1);
  auto const on = [&]<class Exec>(Exec const& exec) {
    // The output of float8 has a type of its own, which is not known here.
    if constexpr (sizeof(T) == 1)
      return std::max({detail::split_workspace_bytes<T, float16>(exec, g),
                       detail::split_workspace_bytes<T, bfloat16>(exec, g),
                       detail::split_workspace_bytes<T, float>(exec, g)});
    else
      return detail::split_workspace_bytes<T, T>(exec, g);
  };
  return std::max(on(Kokkos::DefaultExecutionSpace{}), on(Kokkos::DefaultHostExecutionSpace{}));
}

/// Which kernel attention() would run for these arguments, and why not the others. Throws what
/// attention() would throw.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out,
          detail::AttentionExtra... Extras>
Explanation explain(op::Attention, Exec const& exec, Q const& q, K const& k, V const& v,
                    Out const& out, AttentionOptions const& options = {}, Extras const&... extras) {
  Explanation result;
  detail::attention_dispatch(exec, q, k, v, out, detail::Absent{}, options, &result, extras...);
  return result;
}

/// The same with the log-sum-exp.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out,
          TensorLike Lse, detail::AttentionExtra... Extras>
Explanation explain(op::Attention, Exec const& exec, Q const& q, K const& k, V const& v,
                    Out const& out, Lse const& lse, AttentionOptions const& options = {},
                    Extras const&... extras) {
  Explanation result;
  detail::attention_dispatch(exec, q, k, v, out, lse, options, &result, extras...);
  return result;
}

/// The same for an instance of the default execution space.
template <TensorLike Q, TensorLike K, TensorLike V, TensorLike Out,
          detail::AttentionExtra... Extras>
Explanation explain(op::Attention tag, Q const& q, K const& k, V const& v, Out const& out,
                    AttentionOptions const& options = {}, Extras const&... extras) {
  return explain(tag, Kokkos::DefaultExecutionSpace{}, q, k, v, out, options, extras...);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
