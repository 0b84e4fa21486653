// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// attention_backward(): gradients of attention().
#pragma once

#include <algorithm>
#include <attikos/attention/backward/cuda.hpp>
#include <attikos/attention/backward/portable.hpp>
#include <attikos/core/dispatch/dispatch.hpp>
#include <attikos/core/explain.hpp>
#include <attikos/core/workspace.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// The functors of a call; the score functor must bring its derivative, and the weight functor must
/// not ask for gradients of its parameters.
template <class Acc, class... Extras>
auto differentiable_functors(Extras const&... extras) {
  auto functors = pair_functors(extras...);
  using Functors = decltype(functors);
  if constexpr (Functors::has_score) {
    constexpr bool differentiable = requires(Functors const& f, Acc s, std::int64_t i) {
      f.score.derivative(s, i, i, i, i);
    };
    static_assert(differentiable,
                  "attikos::attention_backward: the score functor needs a member "
                  "derivative(s, b, h, i, j)");
  }
  if constexpr (Functors::has_weight) {
    constexpr bool asks = requires(Functors const& f, Acc x, std::int64_t i) {
      f.weight.accumulate(x, x, i, i, i, i);
    };
    static_assert(!asks,
                  "attikos::attention_backward: gradients of a weight functor's parameters are not "
                  "offered; its member accumulate() would not be called");
  }
  return functors;
}

/// Candidates of a call. A functor can only be compiled into the portable kernels.
template <class T, class Exec, class Functors>
using AttentionBackwardKernels =
    std::conditional_t<Functors::has_score || Functors::has_weight, KernelList<>,
                       typename Specializations<op::AttentionBackward, Exec, T>::kernels>;

/// What the portable kernels need.
template <class T>
std::size_t attention_backward_portable_bytes(abi::AttentionArgs const& g) {
  return static_cast<std::size_t>(attention_backward_rows(g)) * sizeof(AttentionAccumulator<T>);
}

/// Checks, then explains (log given) or runs (log null). `memory`: workspace(view), if any.
template <class T, ExecutionSpace Exec, class Functors, class... Workspaces>
void attention_backward_run(Exec const& exec, AttentionBackwardTensors const& t,
                            AttentionOptions const& options, Functors const& functors,
                            Explanation* log, Workspaces const&... memory) {
  constexpr char const* operation = "attention_backward";
  abi::AttentionBackwardArgs args = attention_backward_arguments(operation, t, options);
  bool const done =
      choose_kernel(operation, AttentionBackwardKernels<T, Exec, Functors>{}, options.kernel, args,
                    exec, log, [&]<class Kernel>(std::type_identity<Kernel>) {
                      // None of them takes a block mask, but each says so.
                      if constexpr (!Functors::has_block_mask) {
                        if (log != nullptr) return;
                        WorkspaceLease const lease = get_workspace(
                            operation, exec, Kernel::workspace_bytes(args, exec), memory...);
                        args.workspace = lease.data;
                        Kernel::run(args, exec);
                      }
                    });
  if (done) return;
  if (log != nullptr) {
    log->instructions = attention_backward_instructions<Exec, T, Functors>(args.forward);
    return;
  }
  WorkspaceLease const lease =
      get_workspace(operation, exec, attention_backward_portable_bytes<T>(args.forward), memory...);
  attention_backward_portable<T>(exec, args, functors, lease.data);
}

/// The same for a call with the types that the user wrote.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out,
          TensorLike Lse, TensorLike Dout, TensorLike Dq, TensorLike Dk, TensorLike Dv,
          class... Extras>
void attention_backward_dispatch(Exec const& exec, Q const& q, K const& k, V const& v,
                                 Out const& out, Lse const& lse, Dout const& dout, Dq const& dq,
                                 Dk const& dk, Dv const& dv, AttentionOptions const& options,
                                 Explanation* log, Extras const&... extras) {
  using T = element_t<Q>;
  auto const tensors =
      attention_backward_tensors<Exec>(q, k, v, out, lse, dout, dq, dk, dv, extras...);
  auto const functors = differentiable_functors<AttentionAccumulator<T>>(extras...);
  with_workspace(
      [&](auto const&... memory) {
        attention_backward_run<T>(exec, tensors, options, functors, log, memory...);
      },
      extras...);
}

}  // namespace detail

/// Gradients of attention(): given dout = ∂L/∂out, writes dq = ∂L/∂q, dk = ∂L/∂k, dv = ∂L/∂v.
///
/// With P = w·e^(s − lse), D_i = Σ_c dout_ic·out_ic and dS_ij = P_ij·(Σ_c dout_ic·v_jc − D_i):
/// dv = Pᵀ·dout, dq = scale·dS'·k, dk = scale·dS'ᵀ·q, where dS' is dS times the derivatives of
/// score functor and softcap. Key heads sum over the query heads they serve.
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param q, k, v  as for attention()
/// \param out, lse what attention() wrote for the same options and extras
/// \param dout     as out
/// \param dq, dk, dv as q, k and v
/// \param options  those of attention(); `algorithm` says nothing here, `kernel` names kernels of
///                 attention_backward()
/// \param extras   those of attention() but paged() and descale(); a score functor has a member
///                 `derivative(s, b, h, i, j)`; besides, d_bias(view) for the gradient of bias(),
///                 d_sinks(view) for that of sinks(). workspace(view): at least
///                 attention_backward_workspace_size() bytes
///
/// A pair that is not seen (lengths, causal, window, masks, weight 0, score −∞) adds exactly
/// nothing, not even a NaN of its query, key or value. Rows with lse −∞ have zero gradients.
/// Gradients at positions past a length and outside all packed sequences are 0; what lies there is
/// never read. Any strides, any head_dim, zero extents. Outputs must not overlap one another or the
/// inputs.
///
/// Which kernel a call goes to, and why not to the others, is what explain() tells;
/// docs/kernels.md has their conditions. Compiled kernels, and those of bfloat16 on instructions
/// that host_isa() chose or a device has for matrices, round weights and gradients of scores to the
/// element type, whose range holds for them too. Compiled kernels keep scores as exponents of 2, as
/// those of attention() do. They take tiles of up to 128 queries and 128 keys as a whole: a NaN or
/// an infinity within a sequence also reaches gradients of positions that do not see it, where its
/// tile has pairs that are seen.
///
/// Types: all double, float, float16 or bfloat16; lse float (double for double). Scores, weights
/// and sums in float (double for double). Scores are computed anew, tile by tile: the only memory
/// beyond the outputs is one sum for each query, and for the compiled kernels one number for each
/// of dq (the caller's, or the instance's pool). Determinism: run to run, and for any number of
/// host threads; `determinism` unordered lets the compiled kernels add up dq in the order in which
/// blocks get there. What a score functor's accumulate() adds up atomically comes in no fixed order
/// whatever `determinism` says, and need not repeat its bits. Throws ShapeError, StrideError,
/// Error, UnsupportedError, ResourceError before anything is launched or written. Source: T. Dao,
/// "FlashAttention-2", arXiv:2307.08691.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out,
          TensorLike Lse, TensorLike Dout, TensorLike Dq, TensorLike Dk, TensorLike Dv,
          detail::AttentionBackwardExtra... Extras>
void attention_backward(Exec const& exec, Q const& q, K const& k, V const& v, Out const& out,
                        Lse const& lse, Dout const& dout, Dq const& dq, Dk const& dk, Dv const& dv,
                        AttentionOptions const& options = {}, Extras const&... extras) {
  detail::attention_backward_dispatch(exec, q, k, v, out, lse, dout, dq, dk, dv, options, nullptr,
                                      extras...);
}

/// The same on an instance of the default execution space.
template <TensorLike Q, TensorLike K, TensorLike V, TensorLike Out, TensorLike Lse, TensorLike Dout,
          TensorLike Dq, TensorLike Dk, TensorLike Dv, detail::AttentionBackwardExtra... Extras>
void attention_backward(Q const& q, K const& k, V const& v, Out const& out, Lse const& lse,
                        Dout const& dout, Dq const& dq, Dk const& dk, Dv const& dv,
                        AttentionOptions const& options = {}, Extras const&... extras) {
  attention_backward(Kokkos::DefaultExecutionSpace{}, q, k, v, out, lse, dout, dq, dk, dv, options,
                     extras...);
}

/// Upper bound of the workspace of attention_backward() for these tensors on `exec`, in bytes.
/// Takes the options and extras of the call, of which cu_seqlens() may add to it, and whatever
/// rules out kernels that need more than the portable ones may take from it.
///
/// The portable kernels need an accumulator for each query of each head, compiled ones some 4 bytes
/// for each number of dq, 8 of double.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V,
          detail::AttentionBackwardExtra... Extras>
std::size_t attention_backward_workspace_size(Exec const& exec, Q const& q, K const& k, V const& v,
                                              AttentionOptions const& options = {},
                                              Extras const&... extras) {
  using T = element_t<Q>;
  constexpr char const* operation = "attention_backward";
  auto const q4 = detail::any_tensor(q).with_rank(4);
  auto const k4 = detail::any_tensor(k).with_rank(4);
  abi::AttentionBackwardArgs a{};
  abi::AttentionArgs& g = a.forward;
  g.type = g.type_out = q4.type;
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
        detail::offsets_ref(operation, "cu_seqlens of q", detail::any_offsets<Exec>(packed.q));
    g.batch = detail::extent_of(packed.q, 0) - 1;
  }
  detail::score_option_arguments(operation, g, options);
  auto const terms = detail::score_terms<Exec>(extras...);
  g.bias = terms.bias.data;
  g.mask = terms.mask.template as<std::uint8_t>();
  g.block_mask = terms.block_mask.template as<std::int8_t>();
  g.alibi = terms.alibi.template as<float>();
  std::size_t bytes = detail::attention_backward_portable_bytes<T>(g);
  [&]<class... Kernels>(detail::KernelList<Kernels...>) {
    ((bytes = std::max(bytes, Kernels::workspace_bytes(a, exec))), ...);
  }(detail::AttentionBackwardKernels<T, Exec, decltype(detail::pair_functors(extras...))>{});
  return bytes;
}

/// The same on an instance of the default execution space.
template <TensorLike Q, TensorLike K, TensorLike V, detail::AttentionBackwardExtra... Extras>
std::size_t attention_backward_workspace_size(Q const& q, K const& k, V const& v,
                                              AttentionOptions const& options = {},
                                              Extras const&... extras) {
  return attention_backward_workspace_size(Kokkos::DefaultExecutionSpace{}, q, k, v, options,
                                           extras...);
}

/// Which kernel attention_backward() would run for these arguments, and why not the others. Throws
/// what attention_backward() would throw.
template <ExecutionSpace Exec, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out,
          TensorLike Lse, TensorLike Dout, TensorLike Dq, TensorLike Dk, TensorLike Dv,
          detail::AttentionBackwardExtra... Extras>
Explanation explain(op::AttentionBackward, Exec const& exec, Q const& q, K const& k, V const& v,
                    Out const& out, Lse const& lse, Dout const& dout, Dq const& dq, Dk const& dk,
                    Dv const& dv, AttentionOptions const& options = {}, Extras const&... extras) {
  Explanation result;
  detail::attention_backward_dispatch(exec, q, k, v, out, lse, dout, dq, dk, dv, options, &result,
                                      extras...);
  return result;
}

/// The same on an instance of the default execution space.
template <TensorLike Q, TensorLike K, TensorLike V, TensorLike Out, TensorLike Lse, TensorLike Dout,
          TensorLike Dq, TensorLike Dk, TensorLike Dv, detail::AttentionBackwardExtra... Extras>
Explanation explain(op::AttentionBackward tag, Q const& q, K const& k, V const& v, Out const& out,
                    Lse const& lse, Dout const& dout, Dq const& dq, Dk const& dk, Dv const& dv,
                    AttentionOptions const& options = {}, Extras const&... extras) {
  return explain(tag, Kokkos::DefaultExecutionSpace{}, q, k, v, out, lse, dout, dq, dk, dv, options,
                 extras...);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
