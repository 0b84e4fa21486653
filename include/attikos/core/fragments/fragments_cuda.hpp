// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Fragments of CUDA's matrix instructions inside Kokkos's own compilation.
///
/// A thread of a team with a vector length of 32 is a warp, and what stands outside a vector range
/// runs on all of its lanes.
#pragma once

#include <attikos/core/fragments/fragments.hpp>
#include <attikos/core/fragments/fragments_mma.hpp>
#include <attikos/ptx/ldmatrix.hpp>
#include <attikos/ptx/mma_sync.hpp>

// What Kokkos compiles for; the host has to know, since it chooses teams and scratch.
#if defined(KOKKOS_ENABLE_CUDA) && (defined(KOKKOS_ARCH_AMPERE) || defined(KOKKOS_ARCH_ADA89) || \
                                    defined(KOKKOS_ARCH_HOPPER) || defined(KOKKOS_ARCH_BLACKWELL))

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class T>
struct CudaFragments : MmaFragments<T> {
  using typename MmaFragments<T>::Left;
  using typename MmaFragments<T>::Right;
  using typename MmaFragments<T>::Sums;

  KOKKOS_INLINE_FUNCTION static void load_left(Left& left, T const* p, FactorPlace place) {
    load(left.word, p, place);
  }
  KOKKOS_INLINE_FUNCTION static void load_right(Right& right, T const* p, FactorPlace place) {
    load(right.word, p, place);
  }
  KOKKOS_INLINE_FUNCTION static void multiply_add(Sums& sums, Left const& left,
                                                  Right const& right) {
    KOKKOS_IF_ON_DEVICE((for (int j = 0; j < 2; ++j) {
      if constexpr (std::is_same_v<T, float16>)
        cuda::mma_f16(sums.value[j], left.word, right.word[2 * j], right.word[2 * j + 1]);
      else if constexpr (std::is_same_v<T, bfloat16>)
        cuda::mma_bf16(sums.value[j], left.word, right.word[2 * j], right.word[2 * j + 1]);
      else
        cuda::mma_s8(sums.value[j], left.word, right.word[2 * j], right.word[2 * j + 1]);
    }))
    (void)sums;
    (void)left;
    (void)right;
  }

 private:
  /// One instruction of two is skipped: code that takes both orders keeps one set of addresses.
  KOKKOS_INLINE_FUNCTION static void load(std::uint32_t (&word)[4], T const* p, FactorPlace place) {
    KOKKOS_IF_ON_DEVICE(
        (auto const address = static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
         if constexpr (MmaFragments<T>::reads_k_major_alone) cuda::load_matrices(word, address);
         else cuda::load_matrices_in_order(word, address, place.k != 1);))
    (void)word;
    (void)p;
    (void)place;
  }
};

template <>
struct CudaFragments<double> : MmaFragments<double> {
  KOKKOS_INLINE_FUNCTION static void multiply_add(Sums& sums, Left const& left,
                                                  Right const& right) {
    KOKKOS_IF_ON_DEVICE((cuda::mma_f64<2>(sums.value, left.value, right.value);))
    (void)sums;
    (void)left;
    (void)right;
  }
};

template <class T>
inline constexpr bool has_matrix_instructions<Kokkos::Cuda, T> =
    std::is_same_v<T, float16> || std::is_same_v<T, bfloat16> || std::is_same_v<T, double> ||
    std::is_same_v<T, std::int8_t>;
template <class T>
requires has_matrix_instructions<Kokkos::Cuda, T>
struct ChooseFragments<Kokkos::Cuda, T> {
  using type = CudaFragments<T>;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos

#endif
