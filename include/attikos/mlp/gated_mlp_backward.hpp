// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// gated_mlp_backward(): gradients of gated_mlp() in its input and both weights.
#pragma once

#include <Kokkos_Profiling_ScopedRegion.hpp>
#include <attikos/core/dispatch/dispatch.hpp>
#include <attikos/core/workspace.hpp>
#include <attikos/mlp/gated_mlp_projections.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
concept GatedMlpBackwardExtra = is_any_wrapper<T, Projections, Workspace>;

/// The type of what lies between the products of a backward call: that of x, weights and dout where
/// they have one, so that the products that follow have one, too; else that of the sums.
template <class X, class W, class DOut>
using GatedMlpBetween = std::conditional_t<std::is_same_v<X, W> && std::is_same_v<X, DOut>, X,
                                           GatedMlpAccumulator<X, W, DOut>>;

/// How the workspace of a backward call is cut.
struct GatedMlpWorkspace {
  std::int64_t row;      ///< elements from one row of dgate, or of dup, to the next
  std::size_t gradient;  ///< bytes of dgate, and of dup behind it
  std::size_t sum;       ///< bytes of the first part of dx, or of a weight's gradient
  std::size_t total() const { return 2 * gradient + sum; }
};

/// \param between, acc  sizes of what lies between the products, and of sums
/// \param dx_narrow, weight_narrow  whether dx, or the gradients of the weights, are stored in less
///                                  than the accumulator
inline GatedMlpWorkspace gated_mlp_workspace(std::int64_t batch, std::int64_t tokens,
                                             std::int64_t hidden, std::int64_t intermediate,
                                             std::size_t between, std::size_t acc, bool dx_narrow,
                                             bool weight_narrow) {
  constexpr std::int64_t line = 64;
  auto const bytes = [](std::int64_t elements, std::size_t size) {
    return round_up<std::int64_t>(elements * static_cast<std::int64_t>(size), line);
  };
  std::int64_t const row =
      round_up<std::int64_t>(intermediate, line / static_cast<std::int64_t>(between));
  std::int64_t const dx = dx_narrow ? batch * tokens * hidden : 0;
  std::int64_t const weight = weight_narrow && batch > 1 ? intermediate * hidden : 0;
  return {row, static_cast<std::size_t>(bytes(batch * tokens * row, between)),
          static_cast<std::size_t>(bytes(std::max(dx, weight), acc))};
}

/// Rows at a distance of `row` elements.
template <class T>
TensorRef<T, 3> dense(T* data, std::int64_t batch, std::int64_t rows, std::int64_t cols,
                      std::int64_t row) {
  return {data, {batch, rows, cols}, {rows * row, row, 1}};
}

/// One entry of the batch as a batch of one.
template <class T>
TensorRef<T, 3> entry(TensorRef<T, 3> x, std::int64_t index) {
  x.data += index * x.stride[0];
  x.extent[0] = 1;
  return x;
}

/// Calls gemm(a, b, out) for the last term of a sum whose other terms are in `sum`: in out itself
/// where that is as wide as an accumulator, so that the sum is rounded once.
template <class Exec, class A, class B, class Acc, class Out>
void add_last_term(Exec const& exec, TensorRef<A, 3> const& a, TensorRef<B, 3> const& b,
                   TensorRef<Acc, 3> const& sum, TensorRef<Out, 3> const& out,
                   GemmOptions options) {
  auto const view_a = view_of<Exec>(a);
  auto const view_b = view_of<Exec>(b);
  auto const view_out = view_of<Exec>(out);
  if constexpr (std::is_same_v<Acc, Out>) {
    options.beta = 1;
    gemm(exec, view_a, view_b, view_out, options);
  } else {
    gemm(exec, view_a, view_b, view_out, options, residual(view_of<Exec>(sum)));
  }
}

/// dx = dgate·Wg + dup·Wu.
template <class Exec, class T, class W, class Acc, class Dx>
void gated_mlp_dx(Exec const& exec, TensorRef<T, 3> const& dgate, TensorRef<T, 3> const& dup,
                  TensorRef<W, 3> const& gate_weight, TensorRef<W, 3> const& up_weight, Acc* sum,
                  TensorRef<Dx, 3> const& dx, GemmOptions const& options) {
  auto const first = dense(sum, dx.extent[0], dx.extent[1], dx.extent[2], dx.extent[2]);
  if constexpr (std::is_same_v<Acc, Dx>) {
    gemm(exec, view_of<Exec>(dgate), view_of<Exec>(gate_weight), view_of<Exec>(dx), options);
  } else {
    gemm(exec, view_of<Exec>(dgate), view_of<Exec>(gate_weight), view_of<Exec>(first), options);
  }
  add_last_term(exec, dup, up_weight, first, dx, options);
}

/// dw = Σ over the batch of dᵀ·x.
template <class Exec, class T, class X, class Acc, class Dw>
void gated_mlp_dw(Exec const& exec, TensorRef<T, 3> const& d, TensorRef<X, 3> const& x, Acc* sum,
                  TensorRef<Dw, 3> const& dw, GemmOptions options) {
  options.trans_a = true;
  auto const partial = dense(sum, 1, dw.extent[1], dw.extent[2], dw.extent[2]);
  std::int64_t const last = x.extent[0] - 1;
  for (std::int64_t b = 0; b < last; ++b) {
    options.beta = b > 0 ? 1 : 0;
    auto const term = view_of<Exec>(entry(d, b));
    if constexpr (std::is_same_v<Acc, Dw>) {
      gemm(exec, term, view_of<Exec>(entry(x, b)), view_of<Exec>(dw), options);
    } else {
      gemm(exec, term, view_of<Exec>(entry(x, b)), view_of<Exec>(partial), options);
    }
  }
  options.beta = 0;
  if (last == 0) {
    gemm(exec, view_of<Exec>(d), view_of<Exec>(x), view_of<Exec>(dw), options);
  } else {
    add_last_term(exec, entry(d, last), entry(x, last), partial, dw, options);
  }
}

/// An output of the backward call; throws unless it has the extents of `like`.
template <ExecutionSpace Exec, TensorLike Out, TensorLike Like>
void check_gradient(char const* name, Out const& out, char const* like_name, Like const& like) {
  static_assert(rank_of<Out> == rank_of<Like>,
                "attikos::gated_mlp_backward: a gradient has the rank of its argument");
  static_assert(is_mlp_element<element_t<Out>>,
                "attikos::gated_mlp_backward: gradients are double, float, float16 or bfloat16");
  check_output<Exec>(out);
  check_extents("gated_mlp_backward", name, out);
  check_extents_of("gated_mlp_backward", name, to_const_ref(out), like_name, to_const_ref(like));
}

/// A weight or its gradient as a batch of one.
template <class T>
TensorRef<T, 3> as_matrix(TensorRef<T, 2> const& x) {
  return as_batches(x);
}

}  // namespace detail

/// Upper bound of the workspace of gated_mlp_backward() for these tensors, in bytes: gradients of
/// gate and up, and one more tensor of dx's or a weight's extents as accumulators.
template <TensorLike X, TensorLike W, TensorLike DOut>
std::size_t gated_mlp_backward_workspace_size(X const& x, W const& gate_weight, DOut const&) {
  using Acc = detail::GatedMlpAccumulator<element_t<X>, element_t<W>, element_t<DOut>>;
  using Between = detail::GatedMlpBetween<element_t<X>, element_t<W>, element_t<DOut>>;
  auto const x3 = detail::as_batches(detail::to_const_ref(x));
  return detail::gated_mlp_workspace(x3.extent[0], x3.extent[1], x3.extent[2],
                                     detail::to_const_ref(gate_weight).extent[0], sizeof(Between),
                                     sizeof(Acc), true, true)
      .total();
}

/// Gradients of gated_mlp(): with gate = x·Wgᵀ, up = x·Wuᵀ,
/// dG = dout ⊙ up ⊙ act'(gate) and dU = dout ⊙ act(gate):
/// dx = dG·Wg + dU·Wu, dWg = dGᵀ·x, dWu = dUᵀ·x (summed over all tokens of all sequences).
///
/// \param exec          execution space instance; the call is asynchronous on it and never fences
/// \param x             [tokens, hidden] or [batch, seqlen, hidden], as in the forward call
/// \param gate_weight   [intermediate, hidden]
/// \param up_weight     [intermediate, hidden]
/// \param dout          [tokens, intermediate] or [batch, seqlen, intermediate]
/// \param dx            the extents of x
/// \param dgate_weight  the extents of gate_weight
/// \param dup_weight    the extents of gate_weight
/// \param options       those of the forward call; `kernel` is "" or "portable"
/// \param extras        projections(gate, up): those that gated_mlp() stored, of dout's extents and
///                      one element type; without them they are computed again, which makes six
///                      products of four. workspace(view): gated_mlp_backward_workspace_size()
///                      bytes
///
/// Outputs are overwritten, not added to; they must not overlap the inputs or one another. Any
/// strides; all extents may be 0.
///
/// Types: as for gated_mlp(); each gradient may have a type of its own. Where x, weights and dout
/// have one type, dG and dU are rounded to it, and so are gate and up that are computed again:
/// products of 16-bit types then are such products, for which a device has matrix instructions.
/// Otherwise all four are accumulators (float, double if x, a weight or dout is double). Sums are
/// accumulators, and every element of a gradient is rounded to its type once.
///
/// Error: with u the unit roundoff of what lies between the products, beside those of gemm()'s
/// sums, |δgate| ≤ u·|gate|, |δup| ≤ u·|up| and a rounding of dG and of dU.
///
/// Determinism: as for gemm(), which forms the products.
///
/// Throws ShapeError, StrideError, Error, UnsupportedError, ResourceError before anything is
/// launched or written.
template <ExecutionSpace Exec, TensorLike X, TensorLike W, TensorLike U, TensorLike DOut,
          TensorLike Dx, TensorLike DGate, TensorLike DUp, detail::GatedMlpBackwardExtra... Extras>
void gated_mlp_backward(Exec const& exec, X const& x, W const& gate_weight, U const& up_weight,
                        DOut const& dout, Dx const& dx, DGate const& dgate_weight,
                        DUp const& dup_weight, GatedMlpOptions const& options = {},
                        Extras const&... extras) {
  using namespace detail;
  using Acc = GatedMlpAccumulator<element_t<X>, element_t<W>, element_t<DOut>>;
  using Between = GatedMlpBetween<element_t<X>, element_t<W>, element_t<DOut>>;
  constexpr char const* name = "gated_mlp_backward";
  abi::GatedMlpArgs const args =
      gated_mlp_arguments<Exec>(name, "dout", x, gate_weight, up_weight, dout, options);
  check_gradient<Exec>("dx", dx, "x", x);
  check_gradient<Exec>("dgate_weight", dgate_weight, "gate_weight", gate_weight);
  check_gradient<Exec>("dup_weight", dup_weight, "up_weight", up_weight);
  auto const kept = find_extra<Projections>(extras...);
  ProjectionMemory const kept_memory = projection_memory<Exec>(name, kept, "dout", dout);
  check_outputs(name,
                {{"dx", any_tensor(dx)},
                 {"dgate_weight", any_tensor(dgate_weight)},
                 {"dup_weight", any_tensor(dup_weight)},
                 {"workspace", any_workspace(extras...)}},
                {{"x", any_tensor(x)},
                 {"gate_weight", any_tensor(gate_weight)},
                 {"up_weight", any_tensor(up_weight)},
                 {"dout", any_tensor(dout)},
                 {"gate of projections(gate, up)", kept_memory.gate},
                 {"up of projections(gate, up)", kept_memory.up}});
  choose_kernel(name, KernelList<>{}, options.kernel, args, exec, nullptr, [](auto) {});

  auto x3 = as_batches(to_const_ref(x));
  auto dx3 = as_batches(to_ref(dx));
  bool const one = joins(x3) && joins(dx3);
  auto const dout3 = as_batches(to_const_ref(dout));
  std::int64_t const batch = one ? 1 : x3.extent[0];
  std::int64_t const tokens = one ? x3.extent[0] * x3.extent[1] : x3.extent[1];
  auto const cut = gated_mlp_workspace(
      batch, tokens, args.hidden, args.intermediate, sizeof(Between), sizeof(Acc),
      !std::is_same_v<element_t<Dx>, Acc>,
      !std::is_same_v<element_t<DGate>, Acc> || !std::is_same_v<element_t<DUp>, Acc>);
  WorkspaceLease const lease = get_workspace(name, exec, cut.total(), extras...);
  Kokkos::Profiling::ScopedRegion const region(label_if_heard(name, "portable"));
  auto* const memory = static_cast<std::byte*>(lease.data);
  auto* const dgate = reinterpret_cast<Between*>(memory);
  auto* const dup = reinterpret_cast<Between*>(memory + cut.gradient);
  auto* const sum = reinterpret_cast<Acc*>(memory + 2 * cut.gradient);

  GemmOptions gemm_options;
  gemm_options.kernel = options.kernel;
  auto const between = [&](Between* data) {
    return dense(data, x3.extent[0], x3.extent[1], args.intermediate, cut.row);
  };
  auto const gradients = [&]<class P>(TensorRef<P const, 3> const& gate,
                                      TensorRef<P const, 3> const& up) {
    GatedGradients<Acc, P, element_t<DOut>, Between> const op{
        rows_of(gate),           rows_of(up),           rows_of(dout3),
        rows_of(between(dgate)), rows_of(between(dup)), options.activation};
    launch_pointwise(exec, name, op, op.dout.count(), args.intermediate);
  };
  if constexpr (is_present<decltype(kept)>) {
    gradients(as_batches(to_const_ref(kept.gate)), as_batches(to_const_ref(kept.up)));
  } else {
    gated_mlp_projections(exec, x3, gate_weight, up_weight, between(dgate), between(dup), options);
    gradients(as_const(between(dgate)), as_const(between(dup)));
  }

  if (one) {  // so that products of all of the batch are one
    x3 = joined(x3);
    dx3 = joined(dx3);
  }
  auto const dgate3 = dense(dgate, batch, tokens, args.intermediate, cut.row);
  auto const dup3 = dense(dup, batch, tokens, args.intermediate, cut.row);
  gated_mlp_dx(exec, dgate3, dup3, as_matrix(to_const_ref(gate_weight)),
               as_matrix(to_const_ref(up_weight)), sum, dx3, gemm_options);
  gated_mlp_dw(exec, dgate3, x3, sum, as_matrix(to_ref(dgate_weight)), gemm_options);
  gated_mlp_dw(exec, dup3, x3, sum, as_matrix(to_ref(dup_weight)), gemm_options);
}

/// The same on an instance of the default execution space.
template <TensorLike X, TensorLike W, TensorLike U, TensorLike DOut, TensorLike Dx,
          TensorLike DGate, TensorLike DUp, detail::GatedMlpBackwardExtra... Extras>
void gated_mlp_backward(X const& x, W const& gate_weight, U const& up_weight, DOut const& dout,
                        Dx const& dx, DGate const& dgate_weight, DUp const& dup_weight,
                        GatedMlpOptions const& options = {}, Extras const&... extras) {
  gated_mlp_backward(Kokkos::DefaultExecutionSpace{}, x, gate_weight, up_weight, dout, dx,
                     dgate_weight, dup_weight, options, extras...);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
