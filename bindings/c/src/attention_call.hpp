// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What forward and backward attention share: options, storage of the sequences, terms of the
// scores.
#pragma once

#include <attikos/attention/attention_options.hpp>
#include <attikos/attention/validate_cu_seqlens.hpp>
#include <initializer_list>
#include <tuple>

#include "options.hpp"
#include "tensor.hpp"

namespace attikos::c {

/// Options of one attention call after all checks that need no element type.
struct AttentionSetup {
  AttentionOptions options;
  bool check = false;
  bool has_lengths = false, has_cu_q = false, has_cu_kv = false, has_pages = false;
  bool has_bias = false, has_mask = false, has_alibi = false, has_sinks = false;
  Tensor lengths_q, lengths_kv, cu_q, cu_kv, pages, bias, mask, alibi, sinks;
};

AttentionSetup read_attention_options(char const* operation,
                                      attikos_attention_options const* options,
                                      attikos_context const& context);

/// An optional tensor, else null data of the given extents, which operations take as absent.
template <class T, int Rank>
Span<T, Rank> optional_span(bool given, Tensor const& tensor,
                            std::array<std::int64_t, Rank> const& extents) {
  if (given) return tensor.span<T, Rank>();
  std::array<std::int64_t, Rank> strides{};
  strides.fill(1);
  return Span<T, Rank>(nullptr, extents, strides);
}

/// Type of sinks beside elements of type T.
template <class T>
using SinkType = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Refuses tensors whose numbers of dimensions do not go with the storage that the options name.
void expect_attention_ranks(char const* operation, AttentionSetup const& setup, Tensor const& q,
                            std::initializer_list<Tensor const*> like_q, Tensor const& k,
                            Tensor const& v);

/// Terms of the scores for elements of type T: all four wrappers, with null data where the caller
/// gave nothing. `batch` and `heads` are those of the queries.
template <class T>
auto attention_terms(AttentionSetup const& setup, std::int64_t batch, std::int64_t heads) {
  auto const broadcast = std::array<std::int64_t, 4>{1, 1, 1, 1};
  auto slopes = Span<float const, 2>(nullptr, {batch, heads}, {0, 0});
  if (setup.has_alibi) {
    auto const given = setup.alibi.span<float const, 2>();
    // [heads] and [1] serve every sequence; a wrong extent stays wrong and is refused.
    bool const every = setup.alibi.rank == 1;
    bool const one = every && given.extent(1) == 1;
    slopes = Span<float const, 2>(given.data_handle(),
                                  {every ? batch : given.extent(0), one ? heads : given.extent(1)},
                                  {every ? 0 : given.stride(0), one ? 0 : given.stride(1)});
  }
  return std::tuple{
      bias(optional_span<T const, 4>(setup.has_bias, setup.bias, broadcast)),
      mask(optional_span<std::uint8_t const, 4>(setup.has_mask, setup.mask, broadcast)),
      alibi(slopes),
      sinks(optional_span<SinkType<T> const, 1>(setup.has_sinks, setup.sinks, {heads}))};
}

/// Refuses a bias or sinks of another type than goes with elements of type T.
template <class T>
void expect_term_types(char const* operation, AttentionSetup const& setup) {
  if (setup.has_sinks) visit_dtype<SinkType<T>>(operation, setup.sinks, [](auto) {});
  if (setup.has_bias) visit_dtype<T>(operation, setup.bias, [](auto) {});
}

/// Offsets of packed sequences.
inline auto offsets(Tensor const& tensor) { return tensor.span<std::int32_t const, 1>(); }

/// Lengths for padded tensors; null data for those that were not given.
inline auto padded_lengths(AttentionSetup const& setup, std::int64_t entries_q,
                           std::int64_t entries_kv) {
  using Int = std::int32_t const;
  return lengths(optional_span<Int, 1>(setup.has_lengths, setup.lengths_q, {entries_q}),
                 optional_span<Int, 1>(setup.has_lengths, setup.lengths_kv, {entries_kv}));
}

}  // namespace attikos::c
