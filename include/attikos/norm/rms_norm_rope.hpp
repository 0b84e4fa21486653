// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// rms_norm_rope() and rms_norm_rope_backward(): root-mean-square normalization, then rotary
/// position embedding, in one pass over memory.
#pragma once

#include <attikos/norm/rms_norm_backward.hpp>
#include <attikos/norm/rms_norm_rope_device.hpp>
#include <utility>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
concept RmsNormRopeExtra = is_any_wrapper<T, Positions>;
template <class T>
concept RmsNormRopeBackwardExtra = is_any_wrapper<T, Positions, Workspace>;

/// One row is what one root mean square is taken over: a token, or a head of it.
template <class Acc, class X, class W, class Table, class Out>
struct RmsNormRopeRow {
  GroupedRows<X const> x;
  TensorRef<W const, 1> weight;
  GroupedRows<Out> out;
  RotatedHeads<Table> way;
  RmsFactor<Acc> factor;

  void host_row(std::int64_t index) const {
    Row<X const> const from = x(index);
    Row<Out> const to = out(index);
    bool const past = out.rows.past_caches(x.rows.data);
    X const* const next = x(index + 1 < x.count() ? index + 1 : index).data;
    host::with_dense(from.stride == 1 && to.stride == 1 && unit_stride(weight), [&](auto dense) {
      host::RowReader<Acc, dense(), X> const read{from.data, from.stride};
      host::RowWriter<Acc, dense(), Out> const write{to.data, to.stride, past};
      auto const w = row_reader<Acc, dense()>(weight);
      auto const squares = host::sum_row<Acc, 1>(
          from.size, [&](std::int64_t j, int count, auto& sum) __attribute__((always_inline)) {
            host::Vec<Acc> const v = read(j, count);
            sum[0] = host::multiply_add<Acc, host::lanes<Acc>>(v, v, sum[0]);
          });
      Acc const f = factor(host::reduce_sum<Acc, host::lanes<Acc>>(squares.of[0]), from.size);
      way.template host_visit<Acc>(
          index, from.size,
          [&](std::int64_t j, int count) __attribute__((always_inline)) {
            if (past) __builtin_prefetch(next + j * from.stride);
            return host::Vec<Acc>(read(j, count) * f * w(j, count));
          },
          write);
    });
  }

  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t index) const {
    Row<X const> const from = x(index);
    Row<Out> const to = out(index);
    Acc const f = factor(device_sum<Acc>(team, from, [](Acc v) { return v * v; }), from.size);
    way.template device_visit<Acc>(
        team, index, from.size,
        [&](std::int64_t j) { return static_cast<Acc>(from[j]) * f * static_cast<Acc>(weight(j)); },
        [&](std::int64_t j, Acc v) { to[j] = static_cast<Out>(v); });
  }
};

/// Number and size of the rows that one root mean square is taken over, per token.
struct NormGroups {
  std::int64_t groups, size, head_dim;
};

/// Checks heads, weight and tables against x [batch, seqlen, hidden]. Heads are as wide as the
/// rotation unless the call says both how many there are and how much of them is rotated.
template <class X, class W, class Table>
NormGroups rms_norm_rope_groups(char const* operation, TensorRef<X const, 3> const& x,
                                TensorRef<W const, 1> const& weight,
                                Rotation<Table> const& rotation,
                                RmsNormRopeOptions const& options) {
  std::int64_t const hidden = x.extent[2], rotary_dim = rotation.dim();
  if (options.num_heads < 0)
    raise<ShapeError>(operation, ": num_heads is ", options.num_heads,
                      "; expected 0 (hidden/head_dim) or more");
  std::int64_t head_dim = rotary_dim, heads = options.num_heads;
  if (options.rotary_dim != 0 && options.num_heads != 0) {
    if (hidden % heads != 0)
      raise<ShapeError>(operation, ": hidden is ", hidden, "; expected a multiple of num_heads ",
                        heads, ". x is ", describe(x));
    head_dim = hidden / heads;
    if (rotary_dim > head_dim)
      raise<ShapeError>(operation, ": rotary_dim is ", rotary_dim, "; expected at most ", head_dim,
                        ", hidden ", hidden, " over num_heads ", heads, ". x is ", describe(x));
  } else {
    if (head_dim == 0 ? hidden != 0 : hidden % head_dim != 0)
      raise<ShapeError>(operation, ": hidden is ", hidden, "; expected a multiple of ", head_dim,
                        ", the head_dim of cos, which is ", describe(rotation.cos), ". x is ",
                        describe(x));
    heads = head_dim == 0 ? options.num_heads : hidden / head_dim;
    if (options.num_heads != 0 && options.num_heads != heads)
      raise<ShapeError>(operation, ": num_heads is ", options.num_heads, "; expected ", heads,
                        " (hidden ", hidden, " over head_dim ", head_dim, ") or 0. x is ",
                        describe(x), ", cos is ", describe(rotation.cos),
                        "; heads that are rotated in part need options.rotary_dim");
  }
  bool const per_head = options.norm == NormExtent::head;
  std::int64_t const size = per_head ? head_dim : hidden;
  if (weight.extent[0] != size)
    raise<ShapeError>(operation, ": weight has ", weight.extent[0], " elements; expected ", size,
                      !per_head                ? ", the last extent of x (norm = hidden)"
                      : head_dim == rotary_dim ? ", the head_dim of cos (norm = head)"
                                               : ", hidden over num_heads (norm = head)",
                      ". x is ", describe(x));
  return {per_head ? heads : 1, size, head_dim};
}

/// The tensors and options of a call after all checks that both directions share.
template <ExecutionSpace Exec, TensorLike X, TensorLike W, TensorLike Cos, TensorLike Sin,
          class... Extras>
auto rms_norm_rope_setup(char const* operation, X const& x, W const& weight, Cos const& cos,
                         Sin const& sin, RmsNormRopeOptions const& options, bool transposed,
                         Extras const&... extras) {
  static_assert(rank_of<X> == 3, "attikos::rms_norm_rope: x is [batch, seqlen, hidden]");
  static_assert(rank_of<W> == 1, "attikos::rms_norm_rope: weight has rank 1");
  check_tensor<Exec, W>();
  auto const rx = to_const_ref(x);
  auto const rotation = make_rotation<element_t<Cos>>(
      operation,
      rotation_arguments<Exec>(cos, sin, options.style, options.rotary_dim, options.position_offset,
                               transposed, extras...),
      rx.extent[0], rx.extent[1]);
  NormGroups const g = rms_norm_rope_groups(operation, rx, to_const_ref(weight), rotation, options);
  return std::pair(g, RotatedHeads<element_t<Cos>>{rotation, rx.extent[1], g.groups, g.head_dim});
}

}  // namespace detail

/// Root-mean-square normalization, then rotary position embedding of every head, in one kernel:
/// out = rope(x/√(mean(x²) + eps)·weight).
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param x        [batch, seqlen, hidden], hidden = num_heads·head_dim
/// \param weight   [hidden]; [head_dim] with norm = head
/// \param cos      [positions, head_dim] or [1, positions, 1, head_dim]; head_dim is even. With
///                 options.rotary_dim of that width or half of it, see below
/// \param sin      the extents and the element type of cos
/// \param out      the extents of x; may be x itself
/// \param options  eps, num_heads (0: hidden/head_dim), norm, style, position_offset, rotary_dim
/// \param extras   positions(view): see rope()
///
/// Without options.rotary_dim heads are as wide as the tables. With it tables are rotary_dim or
/// rotary_dim/2 wide (one entry per pair), and with num_heads beside it heads have
/// hidden/num_heads ≥ rotary_dim features, of which the first rotary_dim are rotated and the others
/// only normalized.
///
/// The mean square is that of all hidden features of a token, or with `norm = NormExtent::head`
/// (QK-norm) that of each head by itself. Tables, positions and styles as for rope().
///
/// Types: any floating-point element for x, weight, tables and out; computed in float, in double if
/// x or out is double, and rounded once. Any strides, zero extents. Determinism: run to run, and
/// for any number of host threads. Throws ShapeError, StrideError, Error before launching. Sources:
/// arXiv:1910.07467, arXiv:2104.09864; QK-norm: A. Henry et al., arXiv:2010.04245.
template <ExecutionSpace Exec, TensorLike X, TensorLike W, TensorLike Cos, TensorLike Sin,
          TensorLike Out, detail::RmsNormRopeExtra... Extras>
void rms_norm_rope(Exec const& exec, X const& x, W const& weight, Cos const& cos, Sin const& sin,
                   Out const& out, RmsNormRopeOptions const& options = {},
                   Extras const&... extras) {
  using Acc = detail::RowAccumulator<element_t<X>, element_t<Out>>;
  char const* const name = "rms_norm_rope";
  detail::check_row_operation<Exec>(name, x, out);
  auto const rx = detail::to_const_ref(x);
  auto const ro = detail::to_ref(out);
  detail::check_same_extents(name, rx, ro);
  auto const [groups, way] =
      detail::rms_norm_rope_setup<Exec>(name, x, weight, cos, sin, options, false, extras...);
  detail::check_outputs(name, {{"out", detail::any_tensor(out)}},
                        {{"x", detail::any_tensor(x), 0},
                         {"weight", detail::any_tensor(weight)},
                         {"cos", detail::any_tensor(cos)},
                         {"sin", detail::any_tensor(sin)},
                         {"positions", detail::any_positions<Exec>(extras...)}});
  detail::GroupedRows<element_t<X> const> const rows{detail::rows_of(rx), groups.groups,
                                                     groups.size};
  if constexpr (!is_host_space<Exec>) {
    detail::RmsNormRopeDeviceRow<Acc, element_t<X>, element_t<W>, element_t<Cos>,
                                 element_t<Out>> const op{
        rows,
        detail::to_const_ref(weight),
        {detail::rows_of(ro), groups.groups, groups.size},
        way,
        {static_cast<Acc>(options.eps)}};
    if (detail::rms_norm_rope_neighbors(exec, name, op)) return;
  }
  detail::launch_rows(
      exec, name,
      detail::RmsNormRopeRow<Acc, element_t<X>, element_t<W>, element_t<Cos>, element_t<Out>>{
          rows,
          detail::to_const_ref(weight),
          {detail::rows_of(ro), groups.groups, groups.size},
          way,
          {static_cast<Acc>(options.eps)}},
      rows.count(), rows.size);
}

/// The same on an instance of the default execution space.
template <TensorLike X, TensorLike W, TensorLike Cos, TensorLike Sin, TensorLike Out,
          detail::RmsNormRopeExtra... Extras>
void rms_norm_rope(X const& x, W const& weight, Cos const& cos, Sin const& sin, Out const& out,
                   RmsNormRopeOptions const& options = {}, Extras const&... extras) {
  rms_norm_rope(Kokkos::DefaultExecutionSpace{}, x, weight, cos, sin, out, options, extras...);
}

/// Upper bound of the workspace of rms_norm_rope_backward() for these tensors, in bytes.
template <TensorLike X, TensorLike W, TensorLike Dout>
std::size_t rms_norm_rope_backward_workspace_size(X const& x, W const& weight, Dout const&) {
  using Acc = detail::RowAccumulator<element_t<X>, element_t<Dout>>;
  auto const rx = detail::to_const_ref(x);
  std::int64_t const width = detail::extent_of(weight, 0);
  std::int64_t const groups = width > 0 ? rx.extent[2] / width : 0;
  return detail::norm_backward_bytes<Acc>(rx.extent[0] * rx.extent[1] * groups, width);
}

/// Gradients of rms_norm_rope(). With g = Rᵀ·dout (see rope_backward()), f = 1/√(mean(x²) + eps)
/// and c = mean(weight·g·x·f): dx = f·(weight·g − x·f·c), dweight = Σ of g·x·f over all tokens,
/// with norm = head over all heads too.
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param x        [batch, seqlen, hidden]: what rms_norm_rope() had, like weight, cos and sin
/// \param weight   [hidden]; [head_dim] with norm = head
/// \param cos      what rms_norm_rope() had
/// \param sin      the extents and the element type of cos
/// \param dout     the extents of x
/// \param dx       the extents of x; may be x or dout itself
/// \param dweight  the extent of weight, overwritten; 0 where there are no tokens
/// \param options  what rms_norm_rope() had
/// \param extras   positions(view): what rms_norm_rope() had;
///                 workspace(view): at least rms_norm_rope_backward_workspace_size() bytes
///
/// The factors are computed again from x. Types: any floating-point element for each argument;
/// summed in float, in double if x or dout is double. Rows are added in chunks and a tree that
/// depend on the shape alone: the same bits on every run, and for any number of host threads.
/// Throws ShapeError, StrideError, Error, ResourceError before launching.
template <ExecutionSpace Exec, TensorLike X, TensorLike W, TensorLike Cos, TensorLike Sin,
          TensorLike Dout, TensorLike Dx, TensorLike Dw, detail::RmsNormRopeBackwardExtra... Extras>
void rms_norm_rope_backward(Exec const& exec, X const& x, W const& weight, Cos const& cos,
                            Sin const& sin, Dout const& dout, Dx const& dx, Dw const& dweight,
                            RmsNormRopeOptions const& options = {}, Extras const&... extras) {
  using Acc = detail::RowAccumulator<element_t<X>, element_t<Dout>>;
  char const* const name = "rms_norm_rope_backward";
  detail::check_row_backward<Exec>(name, "x", x, dout, dx);
  auto const [groups, way] =
      detail::rms_norm_rope_setup<Exec>(name, x, weight, cos, sin, options, true, extras...);
  detail::check_row_sum<Exec>(name, "dweight", dweight, groups.size, "weight");
  detail::check_outputs(name,
                        {{"dx", detail::any_tensor(dx)},
                         {"dweight", detail::any_tensor(dweight)},
                         {"workspace", detail::any_workspace(extras...)}},
                        {{"x", detail::any_tensor(x), 0},
                         {"dout", detail::any_tensor(dout), 0},
                         {"weight", detail::any_tensor(weight)},
                         {"cos", detail::any_tensor(cos)},
                         {"sin", detail::any_tensor(sin)},
                         {"positions", detail::any_positions<Exec>(extras...)}});
  auto const grouped = [&, g = groups](auto const& rows) {
    return detail::GroupedRows<std::remove_pointer_t<decltype(rows.data)>>{rows, g.groups, g.size};
  };
  detail::run_rms_norm_backward<Acc>(exec, name, grouped(detail::rows_of(detail::to_const_ref(x))),
                                     detail::to_const_ref(weight),
                                     grouped(detail::rows_of(detail::to_const_ref(dout))),
                                     grouped(detail::rows_of(detail::to_ref(dx))),
                                     detail::to_ref(dweight), way, options.eps, extras...);
}

/// The same on an instance of the default execution space.
template <TensorLike X, TensorLike W, TensorLike Cos, TensorLike Sin, TensorLike Dout,
          TensorLike Dx, TensorLike Dw, detail::RmsNormRopeBackwardExtra... Extras>
void rms_norm_rope_backward(X const& x, W const& weight, Cos const& cos, Sin const& sin,
                            Dout const& dout, Dx const& dx, Dw const& dweight,
                            RmsNormRopeOptions const& options = {}, Extras const&... extras) {
  rms_norm_rope_backward(Kokkos::DefaultExecutionSpace{}, x, weight, cos, sin, dout, dx, dweight,
                         options, extras...);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
