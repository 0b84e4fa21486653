// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the root-mean-square kernels have in common: rows cut into heads, and ways through a row
/// that see it as it is stored or rotated.
#pragma once

#include <attikos/norm/rotation.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Rows of a tensor, each cut into `groups` rows of `size` elements.
template <class T>
struct GroupedRows {
  Rows<T> rows;
  std::int64_t groups, size;

  KOKKOS_INLINE_FUNCTION std::int64_t count() const { return rows.count() * groups; }
  KOKKOS_INLINE_FUNCTION Row<T> operator()(std::int64_t index) const {
    T* const start = rows(index / groups).data;
    return {start + index % groups * size * rows.stride, rows.stride, size};
  }
};

template <class T, int Rank>
GroupedRows<T> whole_rows(TensorRef<T, Rank> const& x) {
  return {rows_of(x), 1, x.extent[Rank - 1]};
}

/// The way through a row that takes elements as they are; hosts have loops of their own for it. On
/// a device `visit` calls use(j, value) and `sum` adds up f(j, value) with load(j). Other ways have
/// a `visit` for hosts, too, which calls use(j, vector, count) with load(j, count).
struct AsStored {
  template <class Acc, class Team, class Load, class F>
  KOKKOS_INLINE_FUNCTION Acc device_sum(Team const& team, std::int64_t, std::int64_t n,
                                        Load const& load, F const& f) const {
    Acc total = 0;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team, n),
        [&](std::int64_t j, Acc& part) { part += f(j, load(j)); }, total);
    return total;
  }

  template <class Acc, class Team, class Load, class Use>
  KOKKOS_INLINE_FUNCTION void device_visit(Team const& team, std::int64_t, std::int64_t n,
                                           Load const& load, Use const& use) const {
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, n),
                         [&](std::int64_t j) { use(j, load(j)); });
  }
};

/// The way through a row that rotates the first features of each of its heads: row `index` is group
/// index % groups of token index/groups.
template <class Table>
struct RotatedHeads {
  Rotation<Table> rotation;
  std::int64_t seqlen, groups, head_dim;

  KOKKOS_INLINE_FUNCTION std::int64_t table_row(std::int64_t index) const {
    std::int64_t const token = index / groups;
    return rotation.row(token / seqlen, token % seqlen);
  }
  /// Features of a head that stay as they are, and heads of a row.
  KOKKOS_INLINE_FUNCTION std::int64_t rest() const { return head_dim - rotation.dim(); }
  KOKKOS_INLINE_FUNCTION std::int64_t heads(std::int64_t n) const {
    return head_dim == 0 ? 0 : n / head_dim;
  }

  template <class Acc, class Load, class Use>
  void host_visit(std::int64_t index, std::int64_t n, Load const& load, Use const& use) const {
    constexpr int V = host::lanes<Acc>;
    std::int64_t const row = table_row(index);
    for (std::int64_t head = 0; head < n; head += head_dim) {
      rotation.template host_head<Acc>(
          row, [&](std::int64_t j, int count) { return load(head + j, count); },
          [&](std::int64_t j, host::Vec<Acc> v, int count) { use(head + j, v, count); });
      for (std::int64_t j = rotation.dim(); j < head_dim; j += V) {
        int const count = head_dim - j < V ? static_cast<int>(head_dim - j) : V;
        use(head + j, load(head + j, count), count);
      }
    }
  }

  /// Pair p of the row, counted over all its heads.
  template <class Acc, class Load>
  KOKKOS_INLINE_FUNCTION typename Rotation<Table>::template Pair<Acc> pair(std::int64_t row,
                                                                           std::int64_t p,
                                                                           Load const& load) const {
    std::int64_t const half = rotation.dim() / 2;
    std::int64_t const head = p / half * head_dim;
    auto pair =
        rotation.template pair<Acc>(row, p % half, [&](std::int64_t j) { return load(head + j); });
    pair.first += head;
    pair.second += head;
    return pair;
  }
  /// Where feature p of those that stay as they are stands in the row, counted over all its heads.
  KOKKOS_INLINE_FUNCTION std::int64_t kept(std::int64_t p) const {
    return p / rest() * head_dim + rotation.dim() + p % rest();
  }

  template <class Acc, class Team, class Load, class F>
  KOKKOS_INLINE_FUNCTION Acc device_sum(Team const& team, std::int64_t index, std::int64_t n,
                                        Load const& load, F const& f) const {
    std::int64_t const row = table_row(index);
    Acc total = 0;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team, heads(n) * (rotation.dim() / 2)),
        [&](std::int64_t p, Acc& part) {
          auto const at = pair<Acc>(row, p, load);
          part += f(at.first, at.a) + f(at.second, at.b);
        },
        total);
    if (rest() == 0) return total;
    Acc others = 0;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team, heads(n) * rest()),
        [&](std::int64_t p, Acc& part) {
          std::int64_t const j = kept(p);
          part += f(j, load(j));
        },
        others);
    return total + others;
  }

  template <class Acc, class Team, class Load, class Use>
  KOKKOS_INLINE_FUNCTION void device_visit(Team const& team, std::int64_t index, std::int64_t n,
                                           Load const& load, Use const& use) const {
    std::int64_t const row = table_row(index);
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, heads(n) * (rotation.dim() / 2)),
                         [&](std::int64_t p) {
                           auto const at = pair<Acc>(row, p, load);
                           use(at.first, at.a);
                           use(at.second, at.b);
                         });
    if (rest() == 0) return;
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, heads(n) * rest()), [&](std::int64_t p) {
      std::int64_t const j = kept(p);
      use(j, load(j));
    });
  }
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
