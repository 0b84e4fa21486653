// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Products so small that a batch of them is bound by what happens around the sums: no scratch, no
/// tiles, no shuffling of threads.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/tile.hpp>
#include <attikos/gemm/gemm_epilogue.hpp>
#include <limits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// The largest extent of a small product.
inline constexpr int small_gemm_extent = 32;

/// Whether the caller chose any extent of the tile.
inline bool has_tile(abi::GemmArgs const& g) { return g.tile != abi::GemmTile{}; }

/// Whether the call is one of small products, which have no tile. Says nothing about how many there
/// are: on a host the same products go the same way whatever the number of threads.
inline bool is_small_gemm(abi::GemmArgs const& g) {
  return g.m <= small_gemm_extent && g.n <= small_gemm_extent && g.k <= small_gemm_extent &&
         g.offsets == nullptr && g.counts == nullptr && !has_tile(g);
}

/// Operations of small products, an element of C counted as ten.
inline double small_gemm_operations(abi::GemmArgs const& g) {
  auto const number = [](std::int64_t n) { return static_cast<double>(n); };
  return number(g.batch) * number(g.m) * number(g.n) * (2 * number(g.k) * number(g.outer) + 10);
}

/// Whether there is anything to sum; without, scales in blocks along k have no entries to read.
KOKKOS_INLINE_FUNCTION bool has_products(abi::GemmArgs const& g) { return g.k > 0 && g.outer > 0; }
/// Whether sums are to be scaled.
KOKKOS_INLINE_FUNCTION bool has_scaled_products(abi::GemmArgs const& g) {
  return has_products(g) && (g.scale_a.data != nullptr || g.scale_b.data != nullptr);
}

/// One element, read straight from memory, which caches so little data well.
template <class A, class B, class C>
KOKKOS_INLINE_FUNCTION GemmScalar<A, B, C> small_gemm_element(abi::GemmArgs const& g,
                                                              std::int64_t batch, int i, int j) {
  using Acc = GemmAccumulator<A, B, C>;
  using Scalar = GemmScalar<A, B, C>;
  A const* const a = gemm_matrix<A const>(g.a, g.a_pointers, batch, g.a_batch) + i * g.a_m;
  B const* const b = gemm_matrix<B const>(g.b, g.b_pointers, batch, g.b_batch) + j * g.b_n;
  Acc zero_a = 0, zero_b = 0;
  if constexpr (std::is_integral_v<Acc>) {
    if (g.zero_point_a != nullptr)
      zero_a = static_cast<Acc>(g.zero_point_a[i * g.zero_point_a_stride]);
    if (g.zero_point_b != nullptr)
      zero_b = static_cast<Acc>(g.zero_point_b[j * g.zero_point_b_stride]);
  }
  Acc sum = 0;
  for (std::int64_t o = 0; o < g.outer; ++o)
    for (std::int64_t p = 0; p < g.k; ++p) {
      Acc const left = static_cast<Acc>(a[o * g.a_outer + p * g.a_k]) - zero_a;
      sum += left * (static_cast<Acc>(b[o * g.b_outer + p * g.b_k]) - zero_b);
    }
  Scalar x = sum_to_scalar<Scalar>(sum);
  if constexpr (std::is_floating_point_v<Scalar>) {
    if (has_products(g))
      x = x * static_cast<Scalar>(g.scale_a.at(batch, i, 0)) *
          static_cast<Scalar>(g.scale_b.at(batch, 0, j));
  }
  return x;
}

/// Products [first, first + count), one for each thread of a device's team, whose lanes share the
/// elements.
template <class A, class B, class C, class Team, class Function>
KOKKOS_INLINE_FUNCTION void small_gemm_team(Team const& team, abi::GemmArgs const& g,
                                            Function const& function, std::int64_t first,
                                            int count) {
  int const m = static_cast<int>(g.m), n = static_cast<int>(g.n);
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count), [&](int s) {
    std::int64_t const batch = first + s;
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, m * n), [&](int index) {
      // Neighboring lanes write neighboring elements of C.
      bool const by_column = g.c_m == 1 && g.c_n != 1;
      int const i = by_column ? index % m : index / n;
      int const j = by_column ? index / m : index % n;
      gemm_store_element<C>(g, function, {batch, batch}, i, j,
                            small_gemm_element<A, B, C>(g, batch, i, j));
    });
  });
}

namespace host {

/// The sums of one product in rows of `W`·⌈n/W⌉.
template <int W, class Acc, class A, class B>
inline void small_gemm_sums(abi::GemmArgs const& g, A const* a, B const* b, Acc* packed_a,
                            Acc* packed_b, Acc* sums) {
  int const m = static_cast<int>(g.m), n = static_cast<int>(g.n), k = static_cast<int>(g.k);
  int const width = (n + W - 1) / W * W;
  bool const packs_a =
      !std::is_same_v<A, Acc> || g.a_k != 1 || g.a_m < 0 || g.a_m > std::numeric_limits<int>::max();
  for (int i = 0; i < m * width && !has_products(g); ++i) sums[i] = Acc(0);
  for (std::int64_t o = 0; o < g.outer && k > 0; ++o, a += g.a_outer, b += g.b_outer) {
    Acc const* left = packed_a;
    int lda = k;
    if (packs_a) {
      pack_rows<Acc, A>(packed_a, k, Block<A const>{a, g.a_m, g.a_k}, m, k);
    } else if constexpr (std::is_same_v<A, Acc>) {
      left = a;
      lda = static_cast<int>(g.a_m);
    }
    if constexpr (std::is_integral_v<Acc>) {
      if (g.zero_point_a != nullptr)
        for (int i = 0; i < m * k; ++i)
          packed_a[i] -= static_cast<Acc>(g.zero_point_a[i / k * g.zero_point_a_stride]);
    }
    for (int j = 0; j < n; j += W) {
      int const count = n - j < W ? n - j : W;
      B const* const from = b + j * g.b_n;
      for (int p = 0; p < k; ++p) {
        Vec<Acc, W> v = g.b_n == 1 && count == W
                            ? load<Acc, W>(from + p * g.b_k)
                            : load_partial<Acc, W>(from + p * g.b_k, g.b_n, count, Acc(0));
        if constexpr (std::is_integral_v<Acc>) {
          if (g.zero_point_b != nullptr)
            for (int l = 0; l < count; ++l)
              v[l] -= static_cast<Acc>(g.zero_point_b[(j + l) * g.zero_point_b_stride]);
        }
        store<Acc, W>(packed_b + p * W, v);
      }
      multiply_rows<Acc, W, 8, 1>(left, lda, packed_b, sums + j, width, m, k, o > 0);
    }
  }
}

/// One whole product.
template <class A, class B, class C, class Function>
inline void small_gemm(abi::GemmArgs const& g, Function const& function, std::int64_t batch) {
  using Acc = GemmAccumulator<A, B, C>;
  using Scalar = GemmScalar<A, B, C>;
  constexpr int extent = small_gemm_extent;
  constexpr int most = lanes<Acc>;
  static_assert(most <= extent);
  Acc packed_a[extent * extent], packed_b[extent * most], sums[extent * extent];
  A const* const a = gemm_matrix<A const>(g.a, g.a_pointers, batch, g.a_batch);
  B const* const b = gemm_matrix<B const>(g.b, g.b_pointers, batch, g.b_batch);
  int const m = static_cast<int>(g.m), n = static_cast<int>(g.n);
  // Vectors no wider than the rows: the empty lanes of wider ones would be most of the work.
  int width = most;
  if constexpr (most > 4) {
    if (n <= 4) {
      width = 4;
      small_gemm_sums<4, Acc, A, B>(g, a, b, packed_a, packed_b, sums);
    }
  }
  if constexpr (most > 8) {
    if (n > 4 && n <= 8) {
      width = 8;
      small_gemm_sums<8, Acc, A, B>(g, a, b, packed_a, packed_b, sums);
    }
  }
  if (width == most) small_gemm_sums<most, Acc, A, B>(g, a, b, packed_a, packed_b, sums);
  int const ld = (n + width - 1) / width * width;

  Scalar* finished = nullptr;
  Scalar scaled[extent * extent];
  if constexpr (std::is_same_v<Acc, Scalar>) finished = sums;
  bool const scales = has_scaled_products(g);
  if (finished == nullptr || scales) {
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) {
        Scalar const sum = sum_to_scalar<Scalar>(sums[i * ld + j]);
        scaled[i * ld + j] = scales ? sum * static_cast<Scalar>(g.scale_a.at(batch, i, 0)) *
                                          static_cast<Scalar>(g.scale_b.at(batch, 0, j))
                                    : sum;
      }
    finished = scaled;
  }
  // Where C is as dense as the sums and every element is finished alike, it is one long row.
  bool const one_row = ld == n && g.c_n == 1 && g.c_m == n && g.bias == nullptr &&
                       g.residual == nullptr && g.pre_activation == nullptr &&
                       !is_present<Function>;
  if (one_row) return gemm_store_row<C, Scalar>(g, function, {batch, batch}, 0, 0, m * n, finished);
  for (int i = 0; i < m; ++i)
    gemm_store_row<C, Scalar>(g, function, {batch, batch}, i, 0, n, finished + i * ld);
}

}  // namespace host
}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
