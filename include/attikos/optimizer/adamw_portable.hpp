// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The kernels of adamw_step(): one over the tiles of a list of dense parameters, one over the rows
/// of a parameter of any strides. An element's step is the same in both, and wherever it lies.
#pragma once

#include <attikos/core/rows/device.hpp>
#include <attikos/optimizer/adamw_arguments.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// The step of one element, in place; `g` is its gradient.
template <class Acc>
KOKKOS_INLINE_FUNCTION void adamw_element(AdamWFactors<Acc> const& f, Acc g, Acc& w, Acc& m,
                                          Acc& v) {
  g *= f.scale;
  Acc const square = g * g;
  m = Kokkos::fma(f.rate1, g - m, f.is_from_new1 ? g : m);
  v = Kokkos::fma(f.rate2, square - v, f.is_from_new2 ? square : v);
  Acc const size = Kokkos::fma(Kokkos::sqrt(v), f.root, f.epsilon);
  w = Kokkos::fma(-f.step_size, m / size, w * f.decay);
}

namespace host {

/// The same of a vector.
template <class Acc>
inline __attribute__((always_inline)) void adamw_vector(AdamWFactors<Acc> const& f, Vec<Acc> g,
                                                        Vec<Acc>& w, Vec<Acc>& m, Vec<Acc>& v) {
  constexpr int W = lanes<Acc>;
  g *= f.scale;
  Vec<Acc> const square = g * g;
  m = multiply_add<Acc, W>(g - m, f.rate1, f.is_from_new1 ? g : m);
  v = multiply_add<Acc, W>(square - v, f.rate2, f.is_from_new2 ? square : v);
  Vec<Acc> const size =
      multiply_add<Acc, W>(square_root<Acc, W>(v), f.root, broadcast<Acc, W>(f.epsilon));
  w = multiply_add<Acc, W>(m / size, -f.step_size, w * f.decay);
}

}  // namespace host

/// Elements of one parameter in a row, of a stride for each tensor.
template <class T, class G>
struct AdamWRow {
  using Acc = AdamWState<T>;
  T* parameter;
  G const* gradient;
  Acc *exp_avg, *exp_avg_sq, *master;  // the last may be null
  std::int64_t stride[5];              // in the order of adamw_names
  std::int64_t size;

  template <bool Dense>
  inline void host_step(AdamWFactors<Acc> const& f) const {
    constexpr int W = host::lanes<Acc>;
    auto const step_of = [&](int i) { return Dense ? std::int64_t{1} : stride[i]; };
    for (std::int64_t j = 0; j < size; j += W) {
      int const count = size - j < W ? static_cast<int>(size - j) : W;
      auto const load = [&](auto const* p, int i) __attribute__((always_inline)) {
        return host::load_row<Acc>(p + j * step_of(i), step_of(i), count);
      };
      auto const put = [&](auto* p, int i, host::Vec<Acc> x) __attribute__((always_inline)) {
        host::put<Acc>(p + j * step_of(i), step_of(i), count, x);
      };
      host::Vec<Acc> w = master == nullptr ? load(parameter, 0) : load(master, 4);
      host::Vec<Acc> m = load(exp_avg, 2), v = load(exp_avg_sq, 3);
      host::adamw_vector<Acc>(f, load(gradient, 1), w, m, v);
      put(exp_avg, 2, m);
      put(exp_avg_sq, 3, v);
      if (master != nullptr) put(master, 4, w);
      put(parameter, 0, w);
    }
  }

  /// `Count` elements from number j on: neighbors that are aligned, or one of any stride.
  template <int Count>
  KOKKOS_INLINE_FUNCTION void device_step(AdamWFactors<Acc> const& f, std::int64_t j) const {
    auto const at = [&](auto* p, int i) { return p + (Count > 1 ? j : j * stride[i]); };
    Loaded<G, Count> of_gradient;
    Acc w[Count], m[Count], v[Count];
    of_gradient.load(at(gradient, 1));
    load_neighbors<Acc, Count>(at(exp_avg, 2), m);
    load_neighbors<Acc, Count>(at(exp_avg_sq, 3), v);
    if (master == nullptr)
      load_neighbors<Acc, Count>(at(parameter, 0), w);
    else
      load_neighbors<Acc, Count>(at(master, 4), w);
    for (int e = 0; e < Count; ++e)
      adamw_element(f, of_gradient.template value<Acc>(e), w[e], m[e], v[e]);
    store_neighbors(at(exp_avg, 2), m);
    store_neighbors(at(exp_avg_sq, 3), v);
    if (master != nullptr) store_neighbors(at(master, 4), w);
    store_nearest(at(parameter, 0), w);
  }
};

/// A list of dense parameters, which a launch takes by value: no memory holds it in between.
template <class T, class G>
struct AdamWTable {
  using Acc = AdamWState<T>;
  static constexpr int most = 48;             // with the kernel's other arguments below 4 KiB
  static constexpr std::int64_t tile = 1024;  // elements that lanes of a device share
  static constexpr int lanes = 32, width = widest_access / static_cast<int>(sizeof(T));

  struct Entry {
    T* parameter;
    G const* gradient;
    Acc *exp_avg, *exp_avg_sq, *master;
    std::int64_t size, first;  // first: the number of its first tile
  };

  AdamWFactors<Acc> factors;
  int count = 0;
  std::int64_t tiles = 0, elements = 0;
  Entry entries[most] = {};

  explicit AdamWTable(AdamWOptions const& options) : factors(options) {}

  void add(AdamWRow<T, G> const& x) {
    entries[count++] = {x.parameter, x.gradient, x.exp_avg, x.exp_avg_sq, x.master, x.size, tiles};
    tiles += (x.size + tile - 1) / tile;
    elements += x.size;
  }

  KOKKOS_INLINE_FUNCTION AdamWRow<T, G> row(std::int64_t index) const {
    int low = 0;
    for (int high = count; high - low > 1;) {
      int const middle = (low + high) / 2;
      (entries[middle].first <= index ? low : high) = middle;
    }
    Entry const& e = entries[low];
    std::int64_t const begin = (index - e.first) * tile;
    std::int64_t const size = e.size - begin < tile ? e.size - begin : tile;
    return {e.parameter + begin,
            e.gradient + begin,
            e.exp_avg + begin,
            e.exp_avg_sq + begin,
            e.master == nullptr ? nullptr : e.master + begin,
            {1, 1, 1, 1, 1},
            size};
  }

  void host_row(std::int64_t index) const { row(index).template host_step<true>(factors); }

  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t index) const {
    auto const x = row(index);
    auto const address = [](auto const* p) { return reinterpret_cast<std::uintptr_t>(p); };
    bool const wide = (address(x.parameter) | address(x.gradient) | address(x.exp_avg) |
                       address(x.exp_avg_sq) | address(x.master)) %
                          widest_access ==
                      0;
    std::int64_t const chunks = wide ? x.size / width : 0;
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, lanes), [&](int lane) {
      for (std::int64_t c = lane; c < chunks; c += lanes)
        x.template device_step<width>(factors, c * width);
      for (std::int64_t j = chunks * width + lane; j < x.size; j += lanes)
        x.template device_step<1>(factors, j);
    });
  }
};

/// One parameter of any strides, as rows along one dimension, in pieces of as many elements.
template <class T, class G>
struct AdamWStrided {
  using Acc = AdamWState<T>;
  static constexpr int lanes = 32, outer_most = AnyTensor::max_rank - 1;
  static constexpr std::int64_t piece = 1024;

  AdamWFactors<Acc> factors;
  AdamWRow<T, G> whole;  // the row of the first indices
  int outer = 0;         // dimensions beside that of the rows
  std::int64_t pieces = 1, rows = 1;
  std::int64_t extent[outer_most] = {}, stride[5][outer_most] = {};

  KOKKOS_INLINE_FUNCTION AdamWRow<T, G> row(std::int64_t index) const {
    AdamWRow<T, G> x = whole;
    std::int64_t const begin = index % pieces * piece;
    std::int64_t at[5], rest = index / pieces;
    for (int t = 0; t < 5; ++t) at[t] = begin * whole.stride[t];
    for (int d = outer - 1; d >= 0; --d) {
      std::int64_t const i = rest % extent[d];
      rest /= extent[d];
      for (int t = 0; t < 5; ++t) at[t] += i * stride[t][d];
    }
    x.parameter += at[0];
    x.gradient += at[1];
    x.exp_avg += at[2];
    x.exp_avg_sq += at[3];
    if (x.master != nullptr) x.master += at[4];
    x.size = x.size - begin < piece ? x.size - begin : piece;
    return x;
  }

  void host_row(std::int64_t index) const { row(index).template host_step<false>(factors); }

  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t index) const {
    auto const x = row(index);
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, lanes), [&](int lane) {
      for (std::int64_t j = lane; j < x.size; j += lanes) x.template device_step<1>(factors, j);
    });
  }
};

/// A parameter with dimensions joined where those of all its tensors lie as one would, the one that
/// its own elements are closest in last.
template <class T, class G, class Parameter>
AdamWStrided<T, G> adamw_rows(AdamWOptions const& options, Parameter const& p) {
  struct Dimension {
    std::int64_t extent, stride[5];
  };
  Dimension dims[AnyTensor::max_rank] = {};
  int rank = 0;
  for (int r = 0; r < p.parameter.rank; ++r) {
    if (p.parameter.extent[r] == 1) continue;
    Dimension d{p.parameter.extent[r], {}};
    for (int t = 0; t < 5; ++t)
      d.stride[t] = (t == 4 && !p.master.given() ? p.parameter : adamw_tensor(p, t)).stride[r];
    dims[rank++] = d;
  }
  if (rank == 0) dims[rank++] = {1, {1, 1, 1, 1, 1}};
  // Two strides alike would make elements of the parameter one. stable_sort() would take memory.
  std::sort(dims, dims + rank, [](Dimension const& a, Dimension const& b) {
    return std::abs(a.stride[0]) > std::abs(b.stride[0]);
  });
  int joined = 0;
  for (int r = 1; r < rank; ++r) {
    Dimension& outer = dims[joined];
    Dimension const& inner = dims[r];
    bool together = true;
    for (int t = 0; t < 5; ++t)
      together = together && outer.stride[t] == inner.extent * inner.stride[t];
    if (together) {
      std::int64_t const extent = outer.extent * inner.extent;
      outer = inner;
      outer.extent = extent;
    } else {
      dims[++joined] = inner;
    }
  }
  using State = AdamWState<T>;
  Dimension const& last = dims[joined];
  AdamWStrided<T, G> result{AdamWFactors<State>(options),
                            {static_cast<T*>(p.parameter.output()),
                             p.gradient.template as<G>(),
                             static_cast<State*>(p.exp_avg.output()),
                             static_cast<State*>(p.exp_avg_sq.output()),
                             p.master.given() ? static_cast<State*>(p.master.output()) : nullptr,
                             {},
                             last.extent}};
  std::copy(last.stride, last.stride + 5, result.whole.stride);
  result.outer = joined;
  result.pieces = (last.extent + result.piece - 1) / result.piece;
  result.rows = result.pieces;
  for (int d = 0; d < joined; ++d) {
    result.extent[d] = dims[d].extent;
    result.rows *= dims[d].extent;
    for (int t = 0; t < 5; ++t) result.stride[t][d] = dims[d].stride[t];
  }
  return result;
}

/// Dense parameters, as many as a launch takes, by one launch; others by one each.
template <class Exec, class T, class G>
void run_adamw(Exec const& exec, char const* operation,
               std::span<AdamWParameter<T, G, Exec> const> parameters,
               AdamWOptions const& options) {
  using Table = AdamWTable<T, G>;
  Table table(options);
  auto const launch_table = [&] {
    if (table.tiles > 0)
      launch_rows<Table::lanes>(exec, operation, table, table.tiles,
                                (table.elements + table.tiles - 1) / table.tiles);
    table = Table(options);
  };
  for (auto const& p : parameters) {
    auto const x = adamw_rows<T, G>(options, p);
    if (x.rows == 0 || x.whole.size == 0) continue;
    bool const dense = x.outer == 0 && std::all_of(x.whole.stride, x.whole.stride + 5,
                                                   [](std::int64_t s) { return s == 1; });
    if (!dense) {
      launch_rows<AdamWStrided<T, G>::lanes>(exec, operation, x, x.rows,
                                             std::min(x.whole.size, x.piece));
      continue;
    }
    table.add(x.whole);
    if (table.count == Table::most) launch_table();
  }
  launch_table();
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
