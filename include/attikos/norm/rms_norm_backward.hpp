// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// rms_norm_backward() and l2_normalize_backward().
#pragma once

#include <attikos/core/rows/checks.hpp>
#include <attikos/core/rows/sums.hpp>
#include <attikos/norm/norm_backward_device.hpp>
#include <attikos/norm/norm_rows.hpp>
#include <attikos/norm/rms_norm.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
concept NormBackwardExtra = is_any_wrapper<T, Residual, Workspace>;

/// Gradients of y = x/rms(x)·weight for one chunk of rows, from g = the gradient of y, which `Way`
/// makes of dout. With f = 1/rms(x) and c = mean(weight·g·x·f):
/// dx = f·(weight·g − x·f·c) + residual, partial sums of dweight: g·x·f. `More`: rows of the
/// residual, which goes with rows as they are stored, or Absent.
template <class Acc, class X, class W, class Dout, class Dx, class Way, class More = Absent>
struct RmsNormBackward {
  GroupedRows<X const> x;
  TensorRef<W const, 1> weight;
  GroupedRows<Dout const> dout;
  GroupedRows<Dx> dx;
  Way way;
  RmsFactor<Acc> factor;
  RowChunks chunks;
  Acc* partials;
  More residual = {};

  void host_chunk(std::int64_t chunk) const {
    if constexpr (std::is_same_v<Way, AsStored>) {
      host::with_dense(x.rows.stride == 1 && dout.rows.stride == 1 && dx.rows.stride == 1 &&
                           unit_stride(weight) && unit_stride(residual),
                       [&](auto dense) { stored_chunk<dense()>(chunk); });
    } else {
      chunk_by_way(chunk);
    }
  }

  /// host_chunk() of rows whose elements are not taken as they are stored.
  void chunk_by_way(std::int64_t chunk) const {
    constexpr int V = host::lanes<Acc>;
    Acc* const partial = partials + chunk * x.size;
    for (std::int64_t r = chunks.first(chunk); r < chunks.last(chunk); ++r) {
      Row<X const> const from = x(r);
      Row<Dout const> const gradient = dout(r);
      Row<Dx> const to = dx(r);
      auto const load = [&](std::int64_t j, int count) {
        return host::load_row<Acc>(gradient.data + j * gradient.stride, gradient.stride, count);
      };
      auto const x_at = [&](std::int64_t j, int count) {
        return host::load_row<Acc>(from.data + j * from.stride, from.stride, count);
      };
      auto const weight_at = [&](std::int64_t j, int count) {
        return host::load_row<Acc>(weight.data + j * weight.stride[0], weight.stride[0], count);
      };
      host::Vec<Acc> squares{}, products{};
      way.template host_visit<Acc>(
          r, x.size, load, [&](std::int64_t j, host::Vec<Acc> g, int count) {
            host::Vec<Acc> const v = x_at(j, count);
            squares = host::multiply_add<Acc, V>(v, v, squares);
            products = host::multiply_add<Acc, V>(g * weight_at(j, count), v, products);
          });
      Acc const f = factor(host::reduce_sum<Acc, V>(squares), x.size);
      Acc const c = host::reduce_sum<Acc, V>(products) * f / static_cast<Acc>(x.size);
      host::SumsOfRows<Acc> const add{r == chunks.first(chunk)};
      way.template host_visit<Acc>(
          r, x.size, load, [&](std::int64_t j, host::Vec<Acc> g, int count) {
            host::Vec<Acc> const v = x_at(j, count) * f;
            host::put<Acc>(to.data + j * to.stride, to.stride, count,
                           f * host::multiply_add<Acc, V>(-v, c, g * weight_at(j, count)));
            add(partial + j, g, v, count);
          });
    }
  }

  /// host_chunk() of rows as they are stored; `Dense`: side by side.
  template <bool Dense>
  void stored_chunk(std::int64_t chunk) const {
    constexpr int V = host::lanes<Acc>;
    Acc* const partial = partials + chunk * x.size;
    auto const w = row_reader<Acc, Dense>(weight);
    bool const past = dx.rows.past_caches(x.rows.data) && dx.rows.past_caches(dout.rows.data);
    for (std::int64_t r = chunks.first(chunk); r < chunks.last(chunk); ++r) {
      host::RowReader<Acc, Dense, X> const read{x(r).data, x.rows.stride};
      host::RowReader<Acc, Dense, Dout> const gradient{dout(r).data, dout.rows.stride};
      auto const more = host::added_row<Acc, Dense>(residual, r);
      auto const sums = host::sum_row<Acc, 2>(
          x.size, [&](std::int64_t j, int count, auto& sum) __attribute__((always_inline)) {
            host::Vec<Acc> const v = read(j, count);
            sum[0] = host::multiply_add<Acc, V>(v, v, sum[0]);
            sum[1] = host::multiply_add<Acc, V>(gradient(j, count) * w(j, count), v, sum[1]);
          });
      Acc const f = factor(host::reduce_sum<Acc, V>(sums.of[0]), x.size);
      Acc const c = host::reduce_sum<Acc, V>(sums.of[1]) * f / static_cast<Acc>(x.size);
      host::SumsOfRows<Acc> const add{r == chunks.first(chunk)};
      host::write_row<Acc, Dense>(
          dx(r).data, dx.rows.stride, x.size, past, ahead_of(r, x.rows, dout.rows),
          [&](std::int64_t j, int count) __attribute__((always_inline)) {
            host::Vec<Acc> const g = gradient(j, count), v = read(j, count) * f;
            add(partial + j, g, v, count);
            return more(f, host::multiply_add<Acc, V>(-v, c, g * w(j, count)), j, count);
          });
    }
    host::finish_stores_past_caches();
  }

  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_chunk(Team const& team, std::int64_t chunk) const {
    Acc* const partial = partials + chunk * x.size;
    for (std::int64_t r = chunks.first(chunk); r < chunks.last(chunk); ++r) {
      Row<X const> const from = x(r);
      Row<Dout const> const gradient = dout(r);
      Row<Dx> const to = dx(r);
      auto const load = [&](std::int64_t j) { return static_cast<Acc>(gradient[j]); };
      Acc const f = factor(device_sum<Acc>(team, from, [](Acc v) { return v * v; }), x.size);
      Acc const products =
          way.template device_sum<Acc>(team, r, x.size, load, [&](std::int64_t j, Acc g) {
            return g * static_cast<Acc>(weight(j)) * static_cast<Acc>(from[j]);
          });
      Acc const c = products * f / static_cast<Acc>(x.size);
      bool const first = r == chunks.first(chunk);
      // A lane meets the same columns in every row: the partial sums are its own.
      way.template device_visit<Acc>(team, r, x.size, load, [&](std::int64_t j, Acc g) {
        Acc const v = static_cast<Acc>(from[j]) * f;
        to[j] = static_cast<Dx>(f * (g * static_cast<Acc>(weight(j)) - v * c));
        partial[j] = first ? g * v : partial[j] + g * v;
      });
    }
  }
};

/// Partial sums for rows of `x`, as many as both gradients of a norm need.
template <class Acc>
std::size_t norm_backward_bytes(std::int64_t rows, std::int64_t width) {
  return row_sums_bytes(rows, width, sizeof(Acc));
}

/// Runs the chunks, then adds their partial sums into dweight.
template <class Acc, class Exec, class X, class W, class Dout, class Dx, class Way, class Dw,
          class... Extras>
void run_rms_norm_backward(Exec const& exec, char const* operation, GroupedRows<X const> const& x,
                           TensorRef<W const, 1> const& weight, GroupedRows<Dout const> const& dout,
                           GroupedRows<Dx> const& dx, TensorRef<Dw, 1> const& dweight,
                           Way const& way, double eps, Extras const&... extras) {
  auto const residual = residual_rows(extras...);
  using More = std::remove_const_t<decltype(residual)>;
  RowChunks const chunks = partition_rows(is_host_space<Exec>, x.count(), x.size);
  WorkspaceLease const lease =
      get_workspace(operation, exec, norm_backward_bytes<Acc>(x.count(), x.size), extras...);
  Acc* const partials = static_cast<Acc*>(lease.data);
  std::int64_t count = chunks.count();
  RmsFactor<Acc> const factor{static_cast<Acc>(eps)};
  if constexpr (!is_host_space<Exec> && std::is_same_v<Way, AsStored>) {
    using Op = RmsNormDeviceGradient<Acc, X, W, Dout, Dx, RmsFactor<Acc>, More>;
    count = launch_device_gradient(
        exec, operation, Op{x.rows, weight, dout.rows, dx.rows, factor, partials, residual}, chunks,
        x.size, common_width<gradient_neighbors<Op>>(x.rows, dout.rows, dx.rows, weight, residual));
  } else {
    launch_chunks(exec, operation,
                  RmsNormBackward<Acc, X, W, Dout, Dx, Way, More>{x, weight, dout, dx, way, factor,
                                                                  chunks, partials, residual},
                  count);
  }
  Acc const* const sums = sum_partials(exec, operation, partials, count, x.size);
  finish_sums(exec, operation, sums, count, x.size, dweight);
}

/// Gradient of x/max(‖x‖, eps).
template <class Acc, class X, class Dout, class Dx>
struct L2NormalizeBackward {
  Rows<X const> x;
  Rows<Dout const> dout;
  Rows<Dx> dx;
  Acc eps;

  /// dx = f·(g − x·c): f and c from the sums of x² and x·g.
  struct Factors {
    Acc f, c;
  };
  KOKKOS_INLINE_FUNCTION Factors factors(Acc squares, Acc products) const {
    Acc const norm = Kokkos::sqrt(squares);
    if (norm < eps || norm == Acc(0)) return {eps == Acc(0) ? Acc(0) : Acc(1) / eps, Acc(0)};
    return {Acc(1) / norm, products / norm / norm};
  }

  void host_row(std::int64_t index) const {
    Row<X const> const from = x(index);
    Row<Dout const> const g = dout(index);
    Row<Dx> const to = dx(index);
    bool const past = dx.past_caches(x.data) && dx.past_caches(dout.data);
    host::with_dense(from.stride == 1 && g.stride == 1 && to.stride == 1, [&](auto dense) {
      constexpr int V = host::lanes<Acc>;
      host::RowReader<Acc, dense(), X> const read{from.data, from.stride};
      host::RowReader<Acc, dense(), Dout> const gradient{g.data, g.stride};
      auto const sums = host::sum_row<Acc, 2>(
          from.size, [&](std::int64_t j, int count, auto& sum) __attribute__((always_inline)) {
            host::Vec<Acc> const v = read(j, count);
            sum[0] = host::multiply_add<Acc, V>(v, v, sum[0]);
            sum[1] = host::multiply_add<Acc, V>(v, gradient(j, count), sum[1]);
          });
      Factors const k =
          factors(host::reduce_sum<Acc, V>(sums.of[0]), host::reduce_sum<Acc, V>(sums.of[1]));
      host::write_row<Acc, dense()>(
          to.data, to.stride, from.size, past,
          ahead_of(index, x, dout), [&](std::int64_t j, int count) __attribute__((always_inline)) {
            return host::Vec<Acc>(
                k.f * host::multiply_add<Acc, V>(-read(j, count), k.c, gradient(j, count)));
          });
    });
  }
};

}  // namespace detail

/// Upper bound of the workspace of rms_norm_backward() for these tensors, in bytes.
template <TensorLike X, TensorLike W, TensorLike Dout>
std::size_t rms_norm_backward_workspace_size(X const& x, W const&, Dout const&) {
  using Acc = detail::RowAccumulator<element_t<X>, element_t<Dout>>;
  auto const rows = detail::rows_of(detail::to_const_ref(x));
  return detail::norm_backward_bytes<Acc>(rows.count(), rows.size);
}

/// Gradients of rms_norm(). With f = 1/√(mean(x²) + eps) and c = mean(weight·dout·x·f) of a row:
/// dx = f·(weight·dout − x·f·c), dweight = Σ over all rows of dout·x·f.
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param x        rank 1 to 3, [..., hidden]: what rms_norm() had
/// \param weight   [hidden]: what rms_norm() had
/// \param dout     the extents of x
/// \param dx       the extents of x; may be x or dout itself
/// \param dweight  [hidden], overwritten; 0 where there are no rows
/// \param options  what rms_norm() had
/// \param extras   workspace(view): at least rms_norm_backward_workspace_size() bytes;
///                 residual(view), which is added to dx before that is rounded: the gradient that
///                 goes past the norm. It has the extents of x and may be dx itself
///
/// The factors of the rows are computed again from x. Types: any floating-point element for each
/// argument; summed in float, in double if x or dout is double. Rows are added in chunks and a tree
/// that depend on the shape, on a device also on how many multiprocessors it has: the same bits on
/// every run, and for any number of host threads.
/// Throws ShapeError, StrideError, Error, ResourceError before launching.
template <ExecutionSpace Exec, TensorLike X, TensorLike W, TensorLike Dout, TensorLike Dx,
          TensorLike Dw, detail::NormBackwardExtra... Extras>
void rms_norm_backward(Exec const& exec, X const& x, W const& weight, Dout const& dout,
                       Dx const& dx, Dw const& dweight, RmsNormOptions const& options = {},
                       Extras const&... extras) {
  using Acc = detail::RowAccumulator<element_t<X>, element_t<Dout>>;
  char const* const name = "rms_norm_backward";
  detail::check_row_backward<Exec>(name, "x", x, dout, dx);
  detail::check_tensor<Exec, W>();
  auto const rx = detail::to_const_ref(x);
  auto const rw = detail::to_const_ref(weight);
  detail::check_row_vector(name, "weight", rx, rw);
  detail::check_row_sum<Exec>(name, "dweight", dweight, rw.extent[0], "weight");
  detail::check_outputs(name,
                        {{"dx", detail::any_tensor(dx)},
                         {"dweight", detail::any_tensor(dweight)},
                         {"workspace", detail::any_workspace(extras...)}},
                        {{"x", detail::any_tensor(x), 0},
                         {"dout", detail::any_tensor(dout), 0},
                         {"weight", detail::any_tensor(weight)},
                         {"residual", detail::residual_memory<Exec>(name, rx, "x", extras...), 0}});
  detail::run_rms_norm_backward<Acc>(
      exec, name, detail::whole_rows(rx), rw, detail::whole_rows(detail::to_const_ref(dout)),
      detail::whole_rows(detail::to_ref(dx)), detail::to_ref(dweight), detail::AsStored{},
      options.eps, extras...);
}

/// The same on an instance of the default execution space.
template <TensorLike X, TensorLike W, TensorLike Dout, TensorLike Dx, TensorLike Dw,
          detail::NormBackwardExtra... Extras>
void rms_norm_backward(X const& x, W const& weight, Dout const& dout, Dx const& dx,
                       Dw const& dweight, RmsNormOptions const& options = {},
                       Extras const&... extras) {
  rms_norm_backward(Kokkos::DefaultExecutionSpace{}, x, weight, dout, dx, dweight, options,
                    extras...);
}

/// Gradient of l2_normalize(). With n = ‖x‖₂ of a row: dx = (dout − x·(x·dout)/n²)/n where n is at
/// least eps, dx = dout/eps where it is less.
///
/// \param exec  execution space instance; the call is asynchronous on it and never fences
/// \param x     rank 1 to 3, [..., size]: what l2_normalize() had
/// \param dout  the extents of x
/// \param dx    the extents of x; may be x or dout itself
///
/// A row of zeros has dx = dout/eps, and 0 if eps is 0. Types, determinism and errors as for
/// rms_norm_backward().
template <ExecutionSpace Exec, TensorLike X, TensorLike Dout, TensorLike Dx>
void l2_normalize_backward(Exec const& exec, X const& x, Dout const& dout, Dx const& dx,
                           L2NormalizeOptions const& options = {}) {
  using Acc = detail::RowAccumulator<element_t<X>, element_t<Dout>>;
  char const* const name = "l2_normalize_backward";
  detail::check_row_backward<Exec>(name, "x", x, dout, dx);
  detail::check_outputs(name, {{"dx", detail::any_tensor(dx)}},
                        {{"x", detail::any_tensor(x), 0}, {"dout", detail::any_tensor(dout), 0}});
  auto const rows = detail::rows_of(detail::to_const_ref(x));
  using Op = detail::L2NormalizeBackward<Acc, element_t<X>, element_t<Dout>, element_t<Dx>>;
  Op const op{rows, detail::rows_of(detail::to_const_ref(dout)),
              detail::rows_of(detail::to_ref(dx)), static_cast<Acc>(options.eps)};
  if constexpr (is_host_space<Exec>) {
    detail::launch_rows(exec, name, op, rows.count(), rows.size);
  } else {
    using OnDevice =
        detail::L2NormalizeDeviceGradient<Acc, element_t<X>, element_t<Dout>, element_t<Dx>, Op>;
    detail::launch_device_gradient(
        exec, name, OnDevice{op}, detail::single_rows(rows.count()), rows.size,
        detail::common_width<detail::gradient_neighbors<OnDevice>>(op.x, op.dout, op.dx));
  }
}

/// The same on an instance of the default execution space.
template <TensorLike X, TensorLike Dout, TensorLike Dx>
void l2_normalize_backward(X const& x, Dout const& dout, Dx const& dx,
                           L2NormalizeOptions const& options = {}) {
  l2_normalize_backward(Kokkos::DefaultExecutionSpace{}, x, dout, dx, options);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
