// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The parts of an attention call that shape its scores, checked: options, bias, mask, ALiBi,
/// sinks, factors of float8, offsets of packed sequences.
#pragma once

#include <attikos/attention/attention_options.hpp>
#include <attikos/core/to_abi.hpp>
#include <cmath>
#include <string>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Checked offsets of packed sequences.
template <ExecutionSpace Exec, TensorLike T>
abi::Offsets offsets_ref(char const* operation, char const* name, T const& view) {
  using Storage = std::remove_cv_t<typename StorageOf<T>::type>;
  static_assert(std::is_integral_v<Storage> && (sizeof(Storage) == 4 || sizeof(Storage) == 8),
                "attikos: offsets are 32- or 64-bit integers");
  static_assert(rank_of<T> == 1, "attikos: offsets have rank 1");
  static_assert(is_accessible<Exec, T>(),
                "attikos: the offsets cannot be reached from the execution space; copy them first");
  if (extent_of(view, 0) < 1)
    raise<ShapeError>(operation, ": ", name, " has ", extent_of(view, 0),
                      " entries; expected one more than there are sequences");
  return {data_of(view), sizeof(Storage) == 8, stride_of(view, 0)};
}

/// Strides of a tensor that broadcasts to `target`, aligned at the last dimension; throws
/// ShapeError if it does not.
template <class T, int Rank>
void broadcast_strides(char const* operation, char const* name, TensorRef<T, Rank> const& x,
                       std::int64_t const (&target)[4], std::int64_t (&stride)[4],
                       std::string const& shapes) {
  static_assert(Rank >= 2 && Rank <= 4, "attikos::attention: bias and mask have rank 2, 3 or 4");
  for (int r = 0; r < 4; ++r) stride[r] = 0;
  for (int r = 0; r < Rank; ++r) {
    int const t = r + 4 - Rank;
    if (x.extent[r] == target[t]) {
      stride[t] = target[t] == 1 ? 0 : x.stride[r];
    } else if (x.extent[r] != 1) {
      raise<ShapeError>(operation, ": ", name, " has extents ", describe_extents(x),
                        "; expected each to be 1 or as in [", target[0], ", ", target[1], ", ",
                        target[2], ", ", target[3], "], aligned at the last.", shapes);
    }
  }
}

/// Options that enter the score, checked and copied.
inline void score_option_arguments(char const* operation, abi::AttentionArgs& g,
                                   AttentionOptions const& options) {
  if (!std::isfinite(options.softmax_scale))
    raise<Error>(operation, ": softmax_scale is ", options.softmax_scale,
                 "; expected a finite number, 0 for 1/sqrt(d)");
  if (!std::isfinite(options.softcap) || options.softcap < 0)
    raise<Error>(operation, ": softcap is ", options.softcap,
                 "; expected a finite positive number, 0 for none");
  auto const check_window = [&](char const* name, std::int64_t value) {
    if (value < -1)
      raise<Error>(operation, ": ", name, " is ", value, "; expected a number of keys, -1 for all");
  };
  check_window("window_left", options.window_left);
  check_window("window_right", options.window_right);
  g.softmax_scale = options.softmax_scale != 0 ? options.softmax_scale
                    : g.head_dim > 0           ? 1.0 / std::sqrt(static_cast<double>(g.head_dim))
                                               : 1.0;
  g.softcap = options.softcap;
  g.causal = options.causal;
  g.causal_alignment = options.causal_alignment;
  g.window_left = options.window_left;
  g.window_right = options.window_right;
  g.compute = options.compute;
}

/// Pointer and strides of a float array that is one number or [batch, heads].
template <ExecutionSpace Exec, TensorLike T>
float const* per_head_ref(char const* operation, char const* name, T const& view,
                          std::int64_t batch, std::int64_t heads, std::int64_t (&stride)[2]) {
  check_tensor<Exec, T>();
  static_assert(std::is_same_v<element_t<T>, float>,
                "attikos::attention: slopes and descale factors are float");
  static_assert(rank_of<T> == 1 || rank_of<T> == 2,
                "attikos::attention: slopes and descale factors have rank 1 or 2");
  auto const ref = to_const_ref(view);
  stride[0] = stride[1] = 0;
  if constexpr (rank_of<T> == 2) {
    if (ref.extent[0] != batch || ref.extent[1] != heads)
      raise<ShapeError>(operation, ": ", name, " is ", describe(ref), "; expected [", batch, ", ",
                        heads, "]");
    stride[0] = ref.stride[0];
    stride[1] = ref.stride[1];
  } else {
    if (ref.extent[0] != heads && ref.extent[0] != 1)
      raise<ShapeError>(operation, ": ", name, " is ", describe(ref), "; expected [1], [", heads,
                        "] or [", batch, ", ", heads, "]");
    stride[1] = ref.extent[0] == 1 ? 0 : ref.stride[0];
  }
  return ref.data;
}

/// Wrappers that enter the score, checked and copied. `shapes` describes the tensors in messages.
template <ExecutionSpace Exec, class... Extras>
void score_term_arguments(char const* operation, abi::AttentionArgs& g, std::string const& shapes,
                          Extras const&... extras) {
  std::int64_t const target[4] = {g.batch, g.heads_q, g.seqlen_q, g.seqlen_kv};
  auto const bias = find_extra<Bias>(extras...);
  if constexpr (is_present<decltype(bias)>) {
    using View = decltype(bias.view);
    check_tensor<Exec, View>();
    static_assert(is_floating_element<element_t<View>> && sizeof(element_t<View>) >= 2,
                  "attikos::attention: bias is double, float, float16 or bfloat16");
    auto const ref = to_const_ref(bias.view);
    broadcast_strides(operation, "bias", ref, target, g.bias_stride, shapes);
    g.bias = ref.data;
    g.type_bias = dtype_of<element_t<View>>;
  }
  auto const given_mask = find_extra<Mask>(extras...);
  if constexpr (is_present<decltype(given_mask)>) {
    using View = decltype(given_mask.view);
    static_assert(is_accessible<Exec, View>(),
                  "attikos::attention: the mask cannot be reached from the execution space");
    static_assert(
        std::is_same_v<element_t<View>, bool> || std::is_same_v<element_t<View>, std::uint8_t>,
        "attikos::attention: the mask is bool or uint8_t");
    auto const ref = to_const_ref(given_mask.view);
    broadcast_strides(operation, "mask", ref, target, g.mask_stride, shapes);
    g.mask = reinterpret_cast<std::uint8_t const*>(ref.data);
  }
  auto const slopes = find_extra<Alibi>(extras...);
  if constexpr (is_present<decltype(slopes)>)
    g.alibi =
        per_head_ref<Exec>(operation, "alibi", slopes.slopes, g.batch, g.heads_q, g.alibi_stride);
  auto const given_sinks = find_extra<Sinks>(extras...);
  if constexpr (is_present<decltype(given_sinks)>) {
    using View = decltype(given_sinks.view);
    check_tensor<Exec, View>();
    static_assert(rank_of<View> == 1, "attikos::attention: sinks have rank 1");
    static_assert(is_floating_element<element_t<View>> && sizeof(element_t<View>) >= 2,
                  "attikos::attention: sinks are double, float, float16 or bfloat16");
    auto const ref = to_const_ref(given_sinks.view);
    if (ref.extent[0] != g.heads_q)
      raise<ShapeError>(operation, ": sinks is ", describe(ref), "; expected one per query head, [",
                        g.heads_q, "]");
    g.sinks = ref.data;
    g.type_sinks = dtype_of<element_t<View>>;
    g.sinks_stride = ref.stride[0];
  }
  auto const factors = find_extra<Descale>(extras...);
  if constexpr (is_present<decltype(factors)>) {
    g.descale_q = per_head_ref<Exec>(operation, "descale of q", factors.q, g.batch, g.heads_kv,
                                     g.descale_q_stride);
    g.descale_k = per_head_ref<Exec>(operation, "descale of k", factors.k, g.batch, g.heads_kv,
                                     g.descale_k_stride);
    g.descale_v = per_head_ref<Exec>(operation, "descale of v", factors.v, g.batch, g.heads_kv,
                                     g.descale_v_stride);
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
