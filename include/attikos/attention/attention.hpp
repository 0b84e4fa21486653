// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// attention(): softmax(scale·Q·Kᵀ)·V.
#pragma once

#include <attikos/attention/attention_flash.hpp>
#include <attikos/attention/attention_unfused.hpp>
#include <attikos/core/dispatch.hpp>
#include <attikos/core/explain.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
concept AttentionExtra = is_any_wrapper<T, Lengths, Workspace>;

/// Checks, then explains (log given) or runs (log null). `lse` is a tensor or Absent.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out, class Lse,
          class... Extras>
void attention_dispatch(Exec const& exec, Q const& q, K const& k, V const& v, Out const& out,
                        Lse const& lse, AttentionOptions const& options, Explanation* log,
                        Extras const&... extras) {
  using T = element_t<Q>;
  abi::AttentionArgs const args = attention_arguments<Exec>(q, k, v, out, lse, options, extras...);
  // Specializations are flash kernels: who asks for stored scores by name gets them.
  bool const flash = options.algorithm == AttentionAlgorithm::flash;
  char const* const portable = portable_name(options.algorithm);
  char const* const wanted =
      demands(wanted_kernel(options.kernel), portable) ? "portable" : options.kernel;
  auto const visit = [&]<class Kernel>(std::type_identity<Kernel>) {
    if (log == nullptr) Kernel::run(args, exec);
  };
  using Kernels = typename Specializations<op::Attention, Exec, T>::kernels;
  bool const done =
      flash ? choose_kernel("attention", Kernels{}, wanted, args, exec, log, visit)
            : choose_kernel("attention", KernelList<>{}, wanted, args, exec, log, visit);
  if (done) return;
  if (log != nullptr) log->kernel = portable;
  if (flash) {
    if (log == nullptr) attention_flash<T>(exec, args);
    return;
  }
  std::size_t const bytes = attention_scores_bytes(args.batch, args.heads_q, args.seqlen_q,
                                                   args.seqlen_kv, sizeof(AttentionAccumulator<T>));
  check_unfused_leagues<T, Exec>(args);
  if (log != nullptr) return;
  WorkspaceLease const lease = get_workspace("attention", exec, bytes, extras...);
  attention_unfused<T>(exec, args, options.algorithm == AttentionAlgorithm::tiled, lease.data);
}

}  // namespace detail

/// Scaled dot-product attention: out = softmax(scale·q·kᵀ + mask)·v, softmax over the keys.
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param q        [batch, heads_q, seqlen_q, d], or [batch·heads_q, seqlen_q, d]
/// \param k        [batch, heads_kv, seqlen_kv, d]; heads_q is a multiple of heads_kv, each key
/// head serving
///                 heads_q/heads_kv neighboring query heads
/// \param v        [batch, heads_kv, seqlen_kv, dv]
/// \param out      [batch, heads_q, seqlen_q, dv]
/// \param lse      [batch, heads_q, seqlen_q]: natural logarithm of Σ exp(scale·q·k) over the
/// visible keys \param options  scale, causal mask, algorithm, kernel (see AttentionOptions) \param
/// extras   lengths(q, kv): int32, one per sequence (rank 3: one per entry of dimension 0);
///                 workspace(view): at least attention_workspace_size() bytes
///
/// With lengths, off = len_kv − len_q of that sequence, else seqlen_kv − seqlen_q; causal shows key
/// j to query i if j ≤ i + off (top_left: j ≤ i). Rows past len_q, and rows that see no key, give
/// out 0 and lse −∞; what lies in padding is never read. Any strides, any head_dim, zero extents.
/// out must not overlap the inputs.
///
/// Types: q, k, v and out double, float, float16 or bfloat16; scores, weights and sums in float
/// (double for double); lse float (double for double). `flash` needs no memory beyond its outputs;
/// `tiled` and `naive` store batch·heads_q·seqlen_q·seqlen_kv accumulators in the workspace (the
/// caller's, or the instance's pool). Determinism: run to run, and for any number of host threads.
/// Throws ShapeError, StrideError, UnsupportedError, ResourceError before anything is launched or
/// written. Source: T. Dao et al., "FlashAttention", arXiv:2205.14135; A. Vaswani et al.,
/// arXiv:1706.03762.
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

/// Upper bound of the workspace of attention() for these tensors, in bytes. 0 for flash.
template <TensorLike Q, TensorLike K, TensorLike V>
std::size_t attention_workspace_size(Q const& q, K const& k, V const&,
                                     AttentionOptions const& options = {}) {
  if (options.algorithm == AttentionAlgorithm::flash) return 0;
  auto const q4 = detail::with_heads(detail::to_const_ref(q));
  auto const k4 = detail::with_heads(detail::to_const_ref(k));
  return detail::attention_scores_bytes(q4.extent[0], q4.extent[1], q4.extent[2], k4.extent[2],
                                        sizeof(detail::AttentionAccumulator<element_t<Q>>));
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
