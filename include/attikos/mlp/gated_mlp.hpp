// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// gated_mlp(): the gated half of a transformer's feed-forward block.
#pragma once

#include <attikos/core/dispatch/dispatch.hpp>
#include <attikos/core/explain.hpp>
#include <attikos/mlp/gated_mlp_cuda.hpp>
#include <attikos/mlp/gated_mlp_portable.hpp>
#include <attikos/mlp/gated_mlp_projections.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
concept GatedMlpExtra = is_any_wrapper<T, Projections>;

/// A call that stores both projections: two products, and what joins them.
template <ExecutionSpace Exec, TensorLike X, MlpWeight W, MlpWeight U, TensorLike Out, class Kept>
void gated_mlp_keeping(Exec const& exec, X const& x, W const& gate_weight, U const& up_weight,
                       Out const& out, GatedMlpOptions const& options, Kept const& kept,
                       abi::GatedMlpArgs const& args, Explanation* log) {
  using P = element_t<decltype(kept.gate)>;
  using Acc = GatedMlpAccumulator<element_t<X>, weight_element_t<W>, element_t<Out>>;
  check_writable(kept.gate);
  check_writable(kept.up);
  choose_kernel("gated_mlp", KernelList<>{}, options.kernel, args, exec, nullptr, [](auto) {});
  auto const gate = as_batches(to_ref(kept.gate)), up = as_batches(to_ref(kept.up));
  gated_mlp_projections(exec, as_batches(to_const_ref(x)), gate_weight, up_weight, gate, up,
                        options, log);
  if (log != nullptr) return;
  GatedProduct<Acc, P, element_t<Out>> const op{rows_of(as_const(gate)), rows_of(as_const(up)),
                                                rows_of(as_batches(to_ref(out))),
                                                options.activation};
  launch_pointwise(exec, "gated_mlp", op, op.out.count(), op.out.size);
}

/// Checks, then explains (log given) or runs (log null).
template <ExecutionSpace Exec, TensorLike X, MlpWeight W, MlpWeight U, TensorLike Out,
          class... Extras>
void gated_mlp_dispatch(Exec const& exec, X const& x, W const& gate_weight, U const& up_weight,
                        Out const& out, GatedMlpOptions const& options, Explanation* log,
                        Extras const&... extras) {
  check_output<Exec>(out);
  abi::GatedMlpArgs const args =
      gated_mlp_arguments<Exec>("gated_mlp", "out", x, gate_weight, up_weight, out, options);
  auto const kept = find_extra<Projections>(extras...);
  ProjectionMemory const kept_memory = projection_memory<Exec>("gated_mlp", kept, "out", out);
  check_outputs("gated_mlp",
                {{"out", any_tensor(out)},
                 {"gate of projections(gate, up)", kept_memory.gate},
                 {"up of projections(gate, up)", kept_memory.up}},
                {{"x", any_tensor(x)},
                 {"gate_weight", weight_memory(gate_weight)},
                 {"up_weight", weight_memory(up_weight)}});
  if constexpr (is_present<decltype(kept)>)
    return gated_mlp_keeping(exec, x, gate_weight, up_weight, out, options, kept, args, log);
  using TW = weight_element_t<W>;
  using Kernels =
      typename Specializations<op::GatedMlp, Exec, element_t<X>, TW, element_t<Out>>::kernels;
  bool const done = choose_kernel("gated_mlp", Kernels{}, options.kernel, args, exec, log,
                                  [&]<class Kernel>(std::type_identity<Kernel>) {
                                    if (log == nullptr) Kernel::run(args, exec);
                                  });
  if (done) return;
  if (log == nullptr) return gated_mlp_portable<element_t<X>, TW, element_t<Out>>(exec, args);
  log->instructions = gated_mlp_portable_instructions<element_t<X>, TW, element_t<Out>>(exec);
  if constexpr (is_packed_b<W>) log->packed_b = "gate_weight " + gate_weight.layout.to_string();
  if constexpr (is_packed_b<U>)
    log->packed_b +=
        (log->packed_b.empty() ? "" : ", ") + ("up_weight " + up_weight.layout.to_string());
}

}  // namespace detail

/// Gated MLP: out = act(x·Wgᵀ) ⊙ (x·Wuᵀ), with silu the SwiGLU and with gelu the GEGLU of the
/// literature. Nothing of out's size is stored beside out unless the call asks for it.
///
/// \param exec         execution space instance; the call is asynchronous on it and never fences
/// \param x            [tokens, hidden] or [batch, seqlen, hidden]
/// \param gate_weight  Wg, [intermediate, hidden], or on hosts what pack_b() made of it with
///                     `trans_b` (x of its type)
/// \param up_weight    Wu, as Wg
/// \param out          [tokens, intermediate] or [batch, seqlen, intermediate]; must not overlap
///                     the inputs
/// \param options      activation (silu, gelu, gelu_tanh), kernel (see GatedMlpOptions)
/// \param extras       projections(gate, up), outputs of out's extents: x·Wgᵀ and x·Wuᵀ for
///                     gated_mlp_backward(). Two products of gemm() then compute them and a pass
///                     over both joins them as they were stored; `kernel` is "" or "portable"
///
/// Any strides; all extents may be 0, and hidden = 0 gives 0.
///
/// Which kernel a call goes to, and why not to the others, is what explain() tells;
/// docs/kernels.md has their conditions.
///
/// Types: double, float, float16, bfloat16 for x, for both weights, and for out; everything up to
/// the store is computed in float, in double if one of them is double. Host sums run over hidden in
/// ascending order in blocks of 256; instructions that host_isa() chose may take pairs at a time.
/// Packed weights change no bit; see pack_b() for what else a call with them may throw.
///
/// Error, with G = Σ|x||Wg|, U = Σ|x||Wu|, k = hidden: |computed − exact| ≤ (1.13·k·G + 25·|gate|)·
/// ε_acc·|up| + |act(gate)|·(k·U + |up|)·ε_acc + ε_out·|exact|. With projections of a type with
/// ε_p, that is for gate and up as they were stored, ε_p·|gate| and ε_p·|up| off.
///
/// Determinism: run to run, and for any number of host threads.
///
/// Throws ShapeError, StrideError, Error, UnsupportedError before anything is launched or written.
///
/// Source: N. Shazeer, "GLU Variants Improve Transformer", arXiv:2002.05202.
template <ExecutionSpace Exec, TensorLike X, detail::MlpWeight W, detail::MlpWeight U,
          TensorLike Out, detail::GatedMlpExtra... Extras>
void gated_mlp(Exec const& exec, X const& x, W const& gate_weight, U const& up_weight,
               Out const& out, GatedMlpOptions const& options = {}, Extras const&... extras) {
  detail::gated_mlp_dispatch(exec, x, gate_weight, up_weight, out, options, nullptr, extras...);
}

/// The same on an instance of the default execution space.
template <TensorLike X, detail::MlpWeight W, detail::MlpWeight U, TensorLike Out,
          detail::GatedMlpExtra... Extras>
void gated_mlp(X const& x, W const& gate_weight, U const& up_weight, Out const& out,
               GatedMlpOptions const& options = {}, Extras const&... extras) {
  gated_mlp(Kokkos::DefaultExecutionSpace{}, x, gate_weight, up_weight, out, options, extras...);
}

/// Which kernel gated_mlp() would run for these arguments, and why not the others. Throws what
/// gated_mlp() would throw.
template <ExecutionSpace Exec, TensorLike X, detail::MlpWeight W, detail::MlpWeight U,
          TensorLike Out, detail::GatedMlpExtra... Extras>
Explanation explain(op::GatedMlp, Exec const& exec, X const& x, W const& gate_weight,
                    U const& up_weight, Out const& out, GatedMlpOptions const& options = {},
                    Extras const&... extras) {
  Explanation result;
  detail::gated_mlp_dispatch(exec, x, gate_weight, up_weight, out, options, &result, extras...);
  return result;
}

/// The same for an instance of the default execution space.
template <TensorLike X, detail::MlpWeight W, detail::MlpWeight U, TensorLike Out,
          detail::GatedMlpExtra... Extras>
Explanation explain(op::GatedMlp tag, X const& x, W const& gate_weight, U const& up_weight,
                    Out const& out, GatedMlpOptions const& options = {}, Extras const&... extras) {
  return explain(tag, Kokkos::DefaultExecutionSpace{}, x, gate_weight, up_weight, out, options,
                 extras...);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
