// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// In which types attention is multiplied in fragments (core/fragments/).
#pragma once

#include <attikos/attention/attention_head.hpp>
#include <attikos/core/fragments/fragments.hpp>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Type in which instructions multiply what is stored as T.
template <class T>
using AttentionFactor =
    std::conditional_t<std::is_same_v<T, float8_e4m3> || std::is_same_v<T, float8_e5m2>, float16,
                       T>;

/// Whether a device multiplies attention on T by instructions for 16 bits. Weights are rounded to
/// the type of factors, which a result of 16 bits allows. What a functor multiplies them by may be
/// of any size, of which float16 holds too little.
template <class Exec, class T, class Out, class Functors>
inline constexpr bool rounds_attention_weights = [] {
  using Factor = AttentionFactor<T>;
  constexpr bool holds_weights = !(Functors::has_weight && std::is_same_v<Factor, float16>);
  if constexpr (multiplies_in_fragments<Exec> && sizeof(Out) == 2 && holds_weights &&
                has_matrix_instructions<Exec, Factor>)
    return FragmentsFor<Exec, Factor>::sums_make_left;
  else
    return false;
}();

/// Type in which attention is multiplied.
template <class Exec, class T, class Out, class Functors>
using ForwardFactor = std::conditional_t<rounds_attention_weights<Exec, T, Out, Functors>,
                                         AttentionFactor<T>, AttentionAccumulator<T>>;

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
