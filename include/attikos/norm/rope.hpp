// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// rope() and rope_backward(): rotary position embedding.
#pragma once

#include <attikos/core/rows/checks.hpp>
#include <attikos/norm/rope_device.hpp>
#include <attikos/norm/rotation.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
concept RopeExtra = is_any_wrapper<T, Positions>;

/// One row of this operation is one head of one token.
template <class Acc, class X, class Table, class Out>
struct RopeRow {
  TensorRef<X const, 4> x;
  TensorRef<Out, 4> out;
  Rotation<Table> rotation;
  /// Rows run in the order in which x lies in memory: tokens of a head, or heads of a token.
  bool heads_inside;

  struct Token {
    std::int64_t b, h, s;
  };
  KOKKOS_INLINE_FUNCTION Token token(std::int64_t index) const {
    std::int64_t const inner = heads_inside ? x.extent[1] : x.extent[2];
    std::int64_t const outer = heads_inside ? x.extent[2] : x.extent[1];
    std::int64_t const i = index % inner, o = index / inner % outer;
    return {index / inner / outer, heads_inside ? i : o, heads_inside ? o : i};
  }

  void host_row(std::int64_t index) const {
    Token const t = token(index);
    X const* const from = x.ptr(t.b, t.h, t.s, 0);
    Out* const to = out.ptr(t.b, t.h, t.s, 0);
    bool const past = static_cast<void const*>(x.data) != static_cast<void const*>(out.data) &&
                      host::goes_past_caches(x.size() * static_cast<std::int64_t>(sizeof(Out)));
    host::with_dense(x.stride[3] == 1 && out.stride[3] == 1, [&](auto dense) {
      constexpr int V = host::lanes<Acc>;
      host::RowReader<Acc, dense(), X> const read{from, x.stride[3]};
      host::RowWriter<Acc, dense(), Out> const write{to, out.stride[3], past};
      rotation.template host_head<Acc>(
          rotation.row(t.b, t.s), [&](std::int64_t j, int count) { return read(j, count); }, write);
      for (std::int64_t j = rotation.dim(); j < x.extent[3]; j += V) {
        int const count = x.extent[3] - j < V ? static_cast<int>(x.extent[3] - j) : V;
        write(j, read(j, count), count);
      }
    });
  }

  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t index) const {
    Token const t = token(index);
    X const* const from = x.ptr(t.b, t.h, t.s, 0);
    Out* const to = out.ptr(t.b, t.h, t.s, 0);
    std::int64_t const row = rotation.row(t.b, t.s);
    auto const load = [&](std::int64_t j) { return static_cast<Acc>(from[j * x.stride[3]]); };
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, rotation.dim() / 2), [&](std::int64_t i) {
      auto const pair = rotation.template pair<Acc>(row, i, load);
      to[pair.first * out.stride[3]] = static_cast<Out>(pair.a);
      to[pair.second * out.stride[3]] = static_cast<Out>(pair.b);
    });
    Kokkos::parallel_for(
        Kokkos::ThreadVectorRange(team, rotation.dim(), x.extent[3]),
        [&](std::int64_t j) { to[j * out.stride[3]] = static_cast<Out>(load(j)); });
  }
};

/// Both directions: `x_name` and `out_name` are what messages call the two tensors.
template <ExecutionSpace Exec, TensorLike X, TensorLike Cos, TensorLike Sin, TensorLike Out,
          class... Extras>
void run_rope(Exec const& exec, char const* operation, char const* x_name, char const* out_name,
              X const& x, Cos const& cos, Sin const& sin, Out const& out,
              RopeOptions const& options, bool transposed, Extras const&... extras) {
  using Acc = RowAccumulator<element_t<X>, element_t<Out>>;
  check_tensor<Exec, X>();
  check_output<Exec>(out);
  check_extents(operation, x_name, x);
  static_assert(rank_of<X> == 4 && rank_of<Out> == 4,
                "attikos::rope: tensors are [batch, heads, seqlen, head_dim]");
  static_assert(is_floating_element<element_t<X>> && is_floating_element<element_t<Out>>,
                "attikos::rope: tensors hold floating-point elements");
  auto const rx = to_const_ref(x);
  auto const ro = to_ref(out);
  check_extents_like(operation, out_name, ro, x_name, rx);
  RotationArguments const given = rotation_arguments<Exec>(
      cos, sin, options.style, options.rotary_dim, options.position_offset, transposed, extras...);
  auto const rotation = make_rotation<element_t<Cos>>(operation, given, rx.extent[0], rx.extent[2]);
  if (rotation.dim() > rx.extent[3])
    raise<ShapeError>(operation, ": rotary_dim is ", rotation.dim(), "; expected at most ",
                      rx.extent[3], ", the head_dim of ", x_name, ", which is ", describe(rx));
  check_outputs(operation, {{out_name, any_tensor(out)}},
                {{x_name, any_tensor(x), 0},
                 {"cos", given.cos},
                 {"sin", given.sin},
                 {"positions", given.positions}});
  bool const heads_inside = rx.stride[1] < rx.stride[2];
  if constexpr (!is_host_space<Exec>) {
    if (rope_neighbors<Acc>(exec, operation, rx, ro, rotation, heads_inside)) return;
  }
  launch_rows(
      exec, operation,
      RopeRow<Acc, element_t<X>, element_t<Cos>, element_t<Out>>{rx, ro, rotation, heads_inside},
      rx.extent[0] * rx.extent[1] * rx.extent[2], rx.extent[3]);
}

}  // namespace detail

/// Rotary position embedding: out = x·cos + rotate(x)·sin in the first rotary_dim features of every
/// head, out = x in the others.
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param x        [batch, heads, seqlen, head_dim]; heads_first() shows [batch, seqlen, heads,
///                 head_dim] that way
/// \param cos      [positions, rotary_dim] or [1, positions, 1, rotary_dim]; rotary_dim is even and
///                 at most head_dim. With `options.rotary_dim` twice their width, tables hold one
///                 entry per pair: [positions, rotary_dim/2], as flash-attention and Llama store
///                 them
/// \param sin      the extents and the element type of cos
/// \param out      the extents of x; may be x itself
/// \param options  style of the pairs, position_offset, rotary_dim (see RopeOptions)
/// \param extras   positions(view): int32, [batch] with the position of each sequence's first
///                 token, or [batch, seqlen] with the position of every token
///
/// half_split: rotate(x)_i = −x_{i+h} and rotate(x)_{i+h} = x_i for i < h = rotary_dim/2;
/// interleaved: rotate(x)_{2i} = −x_{2i+1} and rotate(x)_{2i+1} = x_{2i}. Every feature has its own
/// entry of cos and sin; in tables of half width entry i is that of both features of pair i. Token
/// s takes row position_offset + s of the tables, with positions row position_offset + positions_b
/// + s or position_offset + positions_{b,s}; rows that positions lead past the table become its
/// first or last one on the device.
///
/// Types: any floating-point element for x, for the tables and for out; computed in float, in
/// double if x or out is double. Any strides, zero extents. Determinism: run to run, and for any
/// number of host threads. Throws ShapeError (also for tables that are too short for
/// position_offset + seqlen), StrideError, Error before launching. Source: J. Su et al.,
/// "RoFormer", arXiv:2104.09864.
template <ExecutionSpace Exec, TensorLike X, TensorLike Cos, TensorLike Sin, TensorLike Out,
          detail::RopeExtra... Extras>
void rope(Exec const& exec, X const& x, Cos const& cos, Sin const& sin, Out const& out,
          RopeOptions const& options = {}, Extras const&... extras) {
  detail::run_rope(exec, "rope", "x", "out", x, cos, sin, out, options, false, extras...);
}

/// The same on an instance of the default execution space.
template <TensorLike X, TensorLike Cos, TensorLike Sin, TensorLike Out, detail::RopeExtra... Extras>
void rope(X const& x, Cos const& cos, Sin const& sin, Out const& out,
          RopeOptions const& options = {}, Extras const&... extras) {
  rope(Kokkos::DefaultExecutionSpace{}, x, cos, sin, out, options, extras...);
}

/// Gradient of rope() with respect to x: dx = Rᵀ·dout, R the rotation that rope() applies.
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param dout     [batch, heads, seqlen, head_dim]
/// \param cos, sin what rope() had
/// \param dx       the extents of dout; may be dout itself
/// \param options  what rope() had
/// \param extras   what rope() had
///
/// half_split: dx_i = dout_i·cos_i + dout_{i+h}·sin_{i+h} and dx_{i+h} = dout_{i+h}·cos_{i+h} −
/// dout_i·sin_i; interleaved likewise with its pairs. Types, determinism and errors as for rope().
template <ExecutionSpace Exec, TensorLike Dout, TensorLike Cos, TensorLike Sin, TensorLike Dx,
          detail::RopeExtra... Extras>
void rope_backward(Exec const& exec, Dout const& dout, Cos const& cos, Sin const& sin, Dx const& dx,
                   RopeOptions const& options = {}, Extras const&... extras) {
  detail::run_rope(exec, "rope_backward", "dout", "dx", dout, cos, sin, dx, options, true,
                   extras...);
}

/// The same on an instance of the default execution space.
template <TensorLike Dout, TensorLike Cos, TensorLike Sin, TensorLike Dx,
          detail::RopeExtra... Extras>
void rope_backward(Dout const& dout, Cos const& cos, Sin const& sin, Dx const& dx,
                   RopeOptions const& options = {}, Extras const&... extras) {
  rope_backward(Kokkos::DefaultExecutionSpace{}, dout, cos, sin, dx, options, extras...);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
