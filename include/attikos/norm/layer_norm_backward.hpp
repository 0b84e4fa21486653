// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// layer_norm_backward().
#pragma once

#include <attikos/core/rows/checks.hpp>
#include <attikos/core/rows/sums.hpp>
#include <attikos/norm/layer_norm.hpp>
#include <attikos/norm/norm_backward_device.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
concept LayerNormBackwardExtra = is_any_wrapper<T, Residual, Workspace>;

/// Gradients of layer_norm for one chunk of rows. With h the normalized row and f = 1/σ:
/// dx = f·(weight·g − mean(weight·g) − h·mean(weight·g·h)) + residual; partial sums g·h, then g.
template <class Acc, class X, class W, class Dout, class Dx, class More>
struct LayerNormBackward {
  Rows<X const> x;
  TensorRef<W const, 1> weight;
  Rows<Dout const> dout;
  Rows<Dx> dx;
  Acc eps;
  RowChunks chunks;
  Acc* partials;
  More residual = {};

  void host_chunk(std::int64_t chunk) const {
    bool const dense = x.stride == 1 && dout.stride == 1 && dx.stride == 1 && unit_stride(weight) &&
                       unit_stride(residual);
    host::with_dense(dense, [&](auto is_dense) { host_rows<is_dense()>(chunk); });
  }

  template <bool Dense>
  void host_rows(std::int64_t chunk) const {
    constexpr int V = host::lanes<Acc>;
    Acc const n = static_cast<Acc>(x.size);
    Acc* const partial = partials + chunk * 2 * x.size;
    auto const w = row_reader<Acc, Dense>(weight);
    bool const past = dx.past_caches(x.data) && dx.past_caches(dout.data);
    for (std::int64_t r = chunks.first(chunk); r < chunks.last(chunk); ++r) {
      host::RowReader<Acc, Dense, X> const read{x(r).data, x.stride};
      host::RowReader<Acc, Dense, Dout> const gradient{dout(r).data, dout.stride};
      auto const more = host::added_row<Acc, Dense>(residual, r);
      auto const sums = host::sum_row<Acc, 2>(
          x.size, [&](std::int64_t j, int count, auto& sum) __attribute__((always_inline)) {
            sum[0] += read(j, count);
            sum[1] = host::multiply_add<Acc, V>(gradient(j, count), w(j, count), sum[1]);
          });
      Acc const mean = host::reduce_sum<Acc, V>(sums.of[0]) / n;
      Acc const mean_g = host::reduce_sum<Acc, V>(sums.of[1]) / n;
      auto const centered = host::sum_row<Acc, 2>(
          x.size, [&](std::int64_t j, int count, auto& sum) __attribute__((always_inline)) {
            host::Vec<Acc> const v = read(j, count, mean) - mean;
            sum[0] = host::multiply_add<Acc, V>(v, v, sum[0]);
            sum[1] = host::multiply_add<Acc, V>(gradient(j, count) * w(j, count), v, sum[1]);
          });
      Acc const f = Acc(1) / std::sqrt(host::reduce_sum<Acc, V>(centered.of[0]) / n + eps);
      Acc const mean_gh = host::reduce_sum<Acc, V>(centered.of[1]) * f / n;
      host::SumsOfRows<Acc> const add{r == chunks.first(chunk)};
      host::write_row<Acc, Dense>(
          dx(r).data, dx.stride, x.size, past,
          ahead_of(r, x, dout), [&](std::int64_t j, int count) __attribute__((always_inline)) {
            host::Vec<Acc> const g = gradient(j, count);
            host::Vec<Acc> const h = (read(j, count, mean) - mean) * f;
            add(partial + j, g, h, count);
            add(partial + x.size + j, g, count);
            host::Vec<Acc> const centered_g =
                host::multiply_add<Acc, V>(g, w(j, count), -host::broadcast<Acc, V>(mean_g));
            return more(f, host::multiply_add<Acc, V>(-h, mean_gh, centered_g), j, count);
          });
    }
    host::finish_stores_past_caches();
  }
};

}  // namespace detail

/// Upper bound of the workspace of layer_norm_backward() for these tensors, in bytes.
template <TensorLike X, TensorLike W, TensorLike Dout>
std::size_t layer_norm_backward_workspace_size(X const& x, W const&, Dout const&) {
  using Acc = detail::RowAccumulator<element_t<X>, element_t<Dout>>;
  auto const rows = detail::rows_of(detail::to_const_ref(x));
  return detail::row_sums_bytes(rows.count(), 2 * rows.size, sizeof(Acc));
}

/// Gradients of layer_norm(). With f = 1/√(var(x) + eps) and h = (x − mean(x))·f of a row:
/// dx = f·(weight·dout − mean(weight·dout) − h·mean(weight·dout·h)), and over all rows
/// dweight = Σ dout·h, dbias = Σ dout.
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param x        rank 1 to 3, [..., hidden]: what layer_norm() had
/// \param weight   [hidden]: what layer_norm() had
/// \param dout     the extents of x
/// \param dx       the extents of x; may be x or dout itself
/// \param dweight  [hidden], overwritten; 0 where there are no rows
/// \param dbias    [hidden], overwritten; 0 where there are no rows
/// \param options  what layer_norm() had
/// \param extras   workspace(view): at least layer_norm_backward_workspace_size() bytes;
///                 residual(view), which is added to dx before that is rounded: the gradient that
///                 goes past the norm. It has the extents of x and may be dx itself
///
/// Mean and variance are computed again from x, in two passes. Types: any floating-point element
/// for each argument; summed in float, in double if x or dout is double. Rows are added in chunks
/// and a tree that depend on the shape, on a device also on how many multiprocessors it has: the
/// same bits on every run, and for any number of host threads. Throws ShapeError, StrideError,
/// Error, ResourceError before launching.
template <ExecutionSpace Exec, TensorLike X, TensorLike W, TensorLike Dout, TensorLike Dx,
          TensorLike Dw, TensorLike Db, detail::LayerNormBackwardExtra... Extras>
void layer_norm_backward(Exec const& exec, X const& x, W const& weight, Dout const& dout,
                         Dx const& dx, Dw const& dweight, Db const& dbias,
                         LayerNormOptions const& options = {}, Extras const&... extras) {
  using Acc = detail::RowAccumulator<element_t<X>, element_t<Dout>>;
  char const* const name = "layer_norm_backward";
  detail::check_row_backward<Exec>(name, "x", x, dout, dx);
  detail::check_tensor<Exec, W>();
  auto const rx = detail::to_const_ref(x);
  auto const rw = detail::to_const_ref(weight);
  detail::check_row_vector(name, "weight", rx, rw);
  detail::check_row_sum<Exec>(name, "dweight", dweight, rw.extent[0], "weight");
  detail::check_row_sum<Exec>(name, "dbias", dbias, rw.extent[0], "weight");
  detail::check_outputs(name,
                        {{"dx", detail::any_tensor(dx)},
                         {"dweight", detail::any_tensor(dweight)},
                         {"dbias", detail::any_tensor(dbias)},
                         {"workspace", detail::any_workspace(extras...)}},
                        {{"x", detail::any_tensor(x), 0},
                         {"dout", detail::any_tensor(dout), 0},
                         {"weight", detail::any_tensor(weight)},
                         {"residual", detail::residual_memory<Exec>(name, rx, "x", extras...), 0}});
  auto const rows = detail::rows_of(rx);
  std::int64_t const width = 2 * rows.size;
  auto const chunks = detail::partition_rows(is_host_space<Exec>, rows.count(), width);
  auto const lease = detail::get_workspace(
      name, exec, detail::row_sums_bytes(rows.count(), width, sizeof(Acc)), extras...);
  Acc* const partials = static_cast<Acc*>(lease.data);
  std::int64_t count = chunks.count();
  auto const from_dout = detail::rows_of(detail::to_const_ref(dout));
  auto const to_dx = detail::rows_of(detail::to_ref(dx));
  Acc const eps = static_cast<Acc>(options.eps);
  auto const residual = detail::residual_rows(extras...);
  using More = std::remove_const_t<decltype(residual)>;
  if constexpr (is_host_space<Exec>) {
    detail::launch_chunks(exec, name,
                          detail::LayerNormBackward<Acc, element_t<X>, element_t<W>,
                                                    element_t<Dout>, element_t<Dx>, More>{
                              rows, rw, from_dout, to_dx, eps, chunks, partials, residual},
                          count);
  } else {
    using Op = detail::LayerNormDeviceGradient<Acc, element_t<X>, element_t<W>, element_t<Dout>,
                                               element_t<Dx>, More>;
    count = detail::launch_device_gradient(
        exec, name, Op{rows, rw, from_dout, to_dx, eps, partials, residual}, chunks, rows.size,
        detail::common_width<detail::gradient_neighbors<Op>>(rows, from_dout, to_dx, rw, residual));
  }
  Acc const* const sums = detail::sum_partials(exec, name, partials, count, width);
  detail::finish_sums(exec, name, sums, count, width, detail::to_ref(dweight),
                      detail::to_ref(dbias));
}

/// The same on an instance of the default execution space.
template <TensorLike X, TensorLike W, TensorLike Dout, TensorLike Dx, TensorLike Dw, TensorLike Db,
          detail::LayerNormBackwardExtra... Extras>
void layer_norm_backward(X const& x, W const& weight, Dout const& dout, Dx const& dx,
                         Dw const& dweight, Db const& dbias, LayerNormOptions const& options = {},
                         Extras const&... extras) {
  layer_norm_backward(Kokkos::DefaultExecutionSpace{}, x, weight, dout, dx, dweight, dbias, options,
                      extras...);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
