// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Element types of a matrix product: which go together, in what they are summed and finished.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/fragments/fragments.hpp>
#include <attikos/quantize/quantize_value.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Type in which a product is summed: double if either side is, float for the rest, and for
/// integers the unsigned 32-bit integers, whose wrap-around is defined and agrees with the two's
/// complement result.
template <class A, class B, class C>
using GemmAccumulator =
    std::conditional_t<std::is_integral_v<A>, std::uint32_t,
                       std::conditional_t<std::is_same_v<A, double> || std::is_same_v<B, double> ||
                                              std::is_same_v<C, double>,
                                          double, float>>;

/// Type in which scales and epilogue are computed: that of the sum, but float for an integer
/// product that does not stay one.
template <class A, class B, class C>
using GemmScalar = std::conditional_t<std::is_integral_v<A> && !std::is_same_v<C, std::int32_t>,
                                      float, GemmAccumulator<A, B, C>>;

template <class T>
inline constexpr bool is_wide_real = std::is_same_v<T, double> || std::is_same_v<T, float> ||
                                     std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

/// Element types that one product may combine.
template <class A, class B, class C>
constexpr bool gemm_types_supported() {
  if constexpr (std::is_same_v<A, std::int8_t> && std::is_same_v<B, std::int8_t>) {
    return std::is_same_v<C, std::int32_t> || std::is_same_v<C, std::int8_t> ||
           (is_wide_real<C> && !std::is_same_v<C, double>);
  } else {
    return is_floating_element<A> && is_floating_element<B> && (is_wide_real<C> || is_quantized<C>);
  }
}

/// The same as a value, which device functions may ask for too.
template <class A, class B, class C>
inline constexpr bool gemm_types_are_supported = gemm_types_supported<A, B, C>();

template <class T>
inline constexpr bool is_float8 = std::is_same_v<T, float8_e4m3> || std::is_same_v<T, float8_e5m2>;

/// Type in which fragments multiply A and B: their own where the device has instructions for it, a
/// 16-bit type that holds both exactly where there is one, else that of the sums.
template <class Exec, class A, class B, class C>
constexpr auto gemm_factor() {
  using Acc = GemmAccumulator<A, B, C>;
  constexpr auto holds = []<class T>(std::type_identity<T>) {
    return has_matrix_instructions<Exec, T> &&
           (std::is_same_v<A, T> || is_float8<A>)&&(std::is_same_v<B, T> || is_float8<B>);
  };
  if constexpr (std::is_same_v<Acc, double>)
    return std::type_identity<double>{};
  else if constexpr (std::is_integral_v<Acc>)
    return std::type_identity<
        std::conditional_t<has_matrix_instructions<Exec, std::int8_t>, std::int8_t, Acc>>{};
  else if constexpr (holds(std::type_identity<float16>{}))
    return std::type_identity<float16>{};
  else if constexpr (holds(std::type_identity<bfloat16>{}))
    return std::type_identity<bfloat16>{};
  else
    return std::type_identity<float>{};
}
template <class Exec, class A, class B, class C>
using GemmFragmentsFor = FragmentsFor<Exec, typename decltype(gemm_factor<Exec, A, B, C>())::type>;

/// A sum as the epilogue takes it.
template <class Scalar, class Acc>
KOKKOS_INLINE_FUNCTION Scalar sum_to_scalar(Acc sum) {
  if constexpr (std::is_integral_v<Acc> && !std::is_integral_v<Scalar>) {
    return static_cast<Scalar>(static_cast<std::int32_t>(sum));
  } else {
    return sum;
  }
}

/// A finished number as an element of C. `undivided` is what `scale_out` divided.
template <class C, class Scalar>
KOKKOS_INLINE_FUNCTION C scalar_to_element(Scalar x, [[maybe_unused]] Scalar undivided) {
  if constexpr (is_quantized<C>) {
    return quantize_value<C>(static_cast<double>(x), is_finite(undivided));
  } else {
    return static_cast<C>(x);
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
