// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The kernels of gemm_backward() that are no products of gemm(): gradients of the epilogue, and
/// products that are summed over the rows of a group.
#pragma once

#include <attikos/core/rows/gradient.hpp>
#include <attikos/core/rows/pointwise.hpp>
#include <attikos/core/rows/sums.hpp>
#include <attikos/gemm/gemm_portable.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Rows of a matrix that take part, where groups or counts of rows are known to the device alone.
struct CountedRows {
  std::int64_t rows = 0;          ///< of one matrix
  void const* offsets = nullptr;  ///< of groups, which share one matrix; null: none
  DType type_offsets = DType::int32;
  std::int64_t offsets_stride = 0, groups = 0;
  std::int32_t const* counts = nullptr;  ///< of each matrix; null: all rows take part
  std::int64_t counts_stride = 0;

  struct Range {
    std::int64_t first, last;
    KOKKOS_INLINE_FUNCTION bool holds(std::int64_t i) const { return i >= first && i < last; }
  };
  bool all() const { return offsets == nullptr && counts == nullptr; }

  KOKKOS_INLINE_FUNCTION std::int64_t offset(std::int64_t group) const {
    std::int64_t const at = group * offsets_stride;
    std::int64_t const value = type_offsets == DType::int64
                                   ? static_cast<std::int64_t const*>(offsets)[at]
                                   : std::int64_t{static_cast<std::int32_t const*>(offsets)[at]};
    return value < 0 ? 0 : (value > rows ? rows : value);
  }
  /// Rows of matrix `batch`.
  KOKKOS_INLINE_FUNCTION Range of_matrix(std::int64_t batch) const {
    if (offsets != nullptr) return groups == 0 ? Range{0, 0} : Range{offset(0), offset(groups)};
    if (counts == nullptr) return {0, rows};
    std::int64_t const count = counts[batch * counts_stride];
    return {0, count < 0 ? 0 : (count > rows ? rows : count)};
  }
  /// Whether row `index` takes part, of all matrices' rows, `each` of one matrix.
  KOKKOS_INLINE_FUNCTION bool holds_row(std::int64_t index, std::int64_t each) const {
    if (offsets == nullptr && counts == nullptr) return true;
    return of_matrix(index / each).holds(index % each);
  }
  /// Rows of group (or matrix) `s`.
  KOKKOS_INLINE_FUNCTION Range of_group(std::int64_t s) const {
    return offsets != nullptr ? Range{offset(s), offset(s + 1)} : of_matrix(s);
  }
};

/// dx = dout·act'(x) of matrices, all as rows.
template <class T, class X>
struct ActivationGradient {
  using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;
  static constexpr int reads = 2, neighbors = detail::neighbors<X, T>;

  Rows<T const> dout;
  Rows<T> dx;
  Rows<X const> x;
  Activation activation;
  CountedRows counted;

  bool moves_at_once() const {
    return rows_move_at_once<neighbors>(dout) && rows_move_at_once<neighbors>(dx) &&
           rows_move_at_once<neighbors>(x);
  }
  KOKKOS_INLINE_FUNCTION bool takes(std::int64_t row) const {
    return counted.holds_row(row, dout.inner);
  }
  template <int Width>
  struct Read {
    Loaded<T, Width> dout;
    Loaded<X, Width> x;
  };
  template <int Width>
  KOKKOS_INLINE_FUNCTION Read<Width> load(std::int64_t row, std::int64_t j) const {
    return {load_of_row<Width>(dout, row, j), load_of_row<Width>(x, row, j)};
  }
  template <int Width, class How>
  KOKKOS_INLINE_FUNCTION void store(std::int64_t row, std::int64_t j, Read<Width> const& read,
                                    How) const {
    Acc result[Width];
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Width; ++i)
      result[i] = read.dout.template value<Acc>(i) *
                  apply_activation_gradient(How::value, read.x.template value<Acc>(i));
    store_to_row<Width>(dx, row, j, result);
  }
  void host_row(std::int64_t row) const {
    if (!takes(row)) return;
    constexpr int W = host::lanes<Acc>;
    Row<T const> const from = dout(row);
    Row<X const> const at = x(row);
    Row<T> const to = dx(row);
    for (std::int64_t j = 0; j < from.size; j += W) {
      int const count = static_cast<int>(from.size - j < W ? from.size - j : W);
      auto const load = [&](auto const& y) {
        return host::load_row<Acc>(y.data + j * y.stride, y.stride, count);
      };
      host::Vec<Acc> const d = load(from),
                           slope = host::activation_gradient<Acc>(activation, load(at));
      host::put<Acc>(to.data + j * to.stride, to.stride, count, host::Vec<Acc>(d * slope));
    }
  }
};

/// dC = factor·dx, all as rows. A factor of 0 reads nothing.
template <class T, class Out>
struct ScaledGradient {
  using Acc = RowAccumulator<T, Out>;
  static constexpr int reads = 1, neighbors = detail::neighbors<T, Out>;

  Rows<T const> dx;
  Rows<Out> dc;
  Acc factor;
  float const* device_scale;  ///< null: 1
  CountedRows counted;

  bool moves_at_once() const {
    return rows_move_at_once<neighbors>(dx) && rows_move_at_once<neighbors>(dc);
  }
  KOKKOS_INLINE_FUNCTION bool takes(std::int64_t row) const {
    return counted.holds_row(row, dx.inner);
  }
  KOKKOS_INLINE_FUNCTION Acc scaled() const {
    return device_scale == nullptr ? factor : factor * static_cast<Acc>(*device_scale);
  }
  template <int Width>
  KOKKOS_INLINE_FUNCTION Loaded<T, Width> load(std::int64_t row, std::int64_t j) const {
    return factor == Acc(0) ? Loaded<T, Width>{} : load_of_row<Width>(dx, row, j);
  }
  template <int Width>
  KOKKOS_INLINE_FUNCTION void store(std::int64_t row, std::int64_t j,
                                    Loaded<T, Width> const& read) const {
    Acc const by = scaled();
    Acc result[Width];
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Width; ++i)
      result[i] = factor == Acc(0) ? Acc(0) : by * read.template value<Acc>(i);
    store_to_row<Width>(dc, row, j, result);
  }
  void host_row(std::int64_t row) const {
    if (!takes(row)) return;
    Row<T const> const from = dx(row);
    Row<Out> const to = dc(row);
    Acc const by = scaled();
    for (std::int64_t j = 0; j < from.size; ++j)
      to[j] = static_cast<Out>(factor == Acc(0) ? Acc(0) : by * static_cast<Acc>(from[j]));
  }
};

/// Partial sums of a chunk of rows of dx, or of its columns where `by_column`; what lies in rows
/// that do not count is not read.
template <class Acc, class T>
struct RowChunkSum {
  Rows<T const> rows;
  RowChunks chunks;
  Acc* partial;
  CountedRows counted;
  bool by_column;

  /// Which elements of "row" r count: all or none of them, or those of a column.
  KOKKOS_INLINE_FUNCTION CountedRows::Range elements(std::int64_t r) const {
    CountedRows::Range const range = counted.of_matrix(r / rows.inner);
    if (by_column) return range;
    return range.holds(r % rows.inner) ? CountedRows::Range{0, rows.size}
                                       : CountedRows::Range{0, 0};
  }

  void host_chunk(std::int64_t chunk) const {
    constexpr int V = host::lanes<Acc>;
    Acc* const out = partial + chunk * rows.size;
    for (std::int64_t j = 0; j < rows.size; j += V) {
      int const count = rows.size - j < V ? static_cast<int>(rows.size - j) : V;
      host::Vec<Acc> sum{};
      for (std::int64_t r = chunks.first(chunk); r < chunks.last(chunk); ++r) {
        CountedRows::Range const range = elements(r);
        T const* const from = rows(r).data;
        if (range.first <= j && j + count <= range.last) {
          sum += host::load_row<Acc>(from + j * rows.stride, rows.stride, count);
        } else {
          for (int l = 0; l < count; ++l)
            if (range.holds(j + l)) sum[l] += static_cast<Acc>(from[(j + l) * rows.stride]);
        }
      }
      host::put<Acc>(out + j, 1, count, sum);
    }
  }
  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_chunk(Team const& team, std::int64_t chunk) const {
    Acc* const out = partial + chunk * rows.size;
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, rows.size), [&](std::int64_t j) {
      Acc sum = 0;
      for (std::int64_t r = chunks.first(chunk); r < chunks.last(chunk); ++r)
        if (elements(r).holds(j)) sum += static_cast<Acc>(rows(r)[j]);
      out[j] = sum;
    });
  }
};

/// C of group s = factor·Σ over the rows p of the group of A[:, p]·B[p, :]; where there is one C
/// for all groups, it sums over these too. The arguments are those of a product whose k counts the
/// rows of a matrix.
template <class Exec, class A, class B, class C>
struct GemmGroupSum {
  using Product = GemmPortable<Exec, A, B, C>;
  using Acc = typename Product::Acc;
  using Traits = typename Product::Traits;
  using Policy = typename Product::Policy;
  using Team = typename Policy::member_type;
  static_assert(!Product::converts);

  Product product;
  CountedRows counted;
  std::int64_t summed;  ///< groups that go into one C: 1 or all

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    abi::GemmArgs const& g = product.g;
    GemmTile const tile = product.tile;
    constexpr int level = Traits::scratch_level;
    int const padded = product.padded_n(), step = product.step();
    typename Product::Memory memory{};
    memory.a = scratch<Acc>(team, level, product.a_count());
    memory.b = scratch<Acc>(team, level, product.b_count());
    Acc* const sums = memory.c = scratch<Acc>(team, level, product.c_count());
    memory.ldc = padded;
    std::int64_t const rank = team.league_rank();
    std::int64_t const row0 = rank % product.tiles_m * tile.m;
    std::int64_t const col0 = rank / product.tiles_m % product.tiles_n * tile.n;
    std::int64_t const batch = rank / (product.tiles_m * product.tiles_n);
    int const rows = static_cast<int>(g.m - row0 < tile.m ? g.m - row0 : tile.m);
    int const cols = static_cast<int>(g.n - col0 < tile.n ? g.n - col0 : tile.n);

    bool empty = true;
    for (std::int64_t s = batch; s < batch + summed; ++s) {
      CountedRows::Range const range = counted.of_group(s);
      Block<A const> const a{static_cast<A const*>(g.a) + s * g.a_batch + row0 * g.a_m, g.a_m,
                             g.a_k};
      Block<B const> const b{static_cast<B const*>(g.b) + s * g.b_batch + col0 * g.b_n, g.b_k,
                             g.b_n};
      for (std::int64_t p = range.first; p < range.last; p += step) {
        int const depth = static_cast<int>(range.last - p < step ? range.last - p : step);
        product.add_products(team, memory, {a.at(0, p), g.a_m, g.a_k}, {b.at(p, 0), g.b_k, g.b_n},
                             row0, col0, 0, rows, cols, depth, !empty);
        empty = false;
      }
    }
    if (empty) {
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows * padded),
                           [&](int i) { sums[i] = Acc(0); });
      team.team_barrier();
    }
    product.store_tile(team, sums, {batch, batch}, row0, col0, rows, cols);
  }
};

/// Launches the sums over groups. Asynchronous on `exec`.
template <class A, class B, class C, class Exec>
void gemm_group_sum(Exec const& exec, abi::GemmArgs const& args, CountedRows const& counted,
                    std::int64_t summed) {
  if (args.m == 0 || args.n == 0 || args.batch == 0) return;
  using Kernel = GemmGroupSum<Exec, A, B, C>;
  using Traits = typename Kernel::Traits;
  typename Kernel::Product product{args, {}, {}, 0, 0};
  set_automatic_gemm_tile(product, exec);
  product.tiles_m = (args.m + product.tile.m - 1) / product.tile.m;
  product.tiles_n = (args.n + product.tile.n - 1) / product.tile.n;
  typename Kernel::Policy policy(
      exec, checked_league("gemm_backward", product.tiles_m * product.tiles_n * args.batch),
      Traits::team_size, Traits::vector_length);
  policy.set_scratch_size(Traits::scratch_level,
                          Kokkos::PerTeam(checked_scratch("gemm_backward", product.bytes())));
  launch("gemm_backward", "portable", policy, Kernel{product, counted, summed});
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
