// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What forward and backward attention and decode share: options, storage of the sequences, terms
// of the scores.
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
  bool has_lengths_q = false, has_lengths = false;  ///< has_lengths: those of the keys
  bool has_cu_q = false, has_cu_kv = false, has_pages = false;
  bool has_bias = false, has_mask = false, has_alibi = false, has_sinks = false;
  bool has_descale_q = false, has_descale_k = false, has_descale_v = false;
  Tensor lengths_q, lengths_kv, cu_q, cu_kv, pages, bias, mask, alibi, sinks;
  Tensor descale_q, descale_k, descale_v;

  bool has_descale() const { return has_descale_q || has_descale_k || has_descale_v; }
};

/// `queries_alone`: queries may be packed where keys are padded.
AttentionSetup read_attention_options(char const* operation,
                                      attikos_attention_options const* options,
                                      attikos_context const& context, bool queries_alone = false);

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

/// [batch, heads] numbers. [heads] and [1] serve every sequence; a wrong extent stays wrong and is
/// refused.
inline Span<float const, 2> per_head(bool has, Tensor const& tensor, std::int64_t batch,
                                     std::int64_t heads) {
  if (!has) return Span<float const, 2>(nullptr, {batch, heads}, {0, 0});
  auto const given = tensor.span<float const, 2>();
  bool const every = tensor.rank == 1;
  bool const one = every && given.extent(1) == 1;
  return Span<float const, 2>(given.data_handle(),
                              {every ? batch : given.extent(0), one ? heads : given.extent(1)},
                              {every ? 0 : given.stride(0), one ? 0 : given.stride(1)});
}

/// Terms of the scores for elements of type T, which a bias has too (beside float8 that of the
/// output, `Out`): all wrappers, with null data where the caller gave nothing. `batch` and `heads`
/// are those of the queries.
template <class T, class Out = T>
auto attention_terms(AttentionSetup const& setup, std::int64_t batch, std::int64_t heads,
                     [[maybe_unused]] std::int64_t heads_kv = 0) {
  auto const broadcast = std::array<std::int64_t, 4>{1, 1, 1, 1};
  auto const terms =
      std::tuple{bias(optional_span<Out const, 4>(setup.has_bias, setup.bias, broadcast)),
                 mask(optional_span<std::uint8_t const, 4>(setup.has_mask, setup.mask, broadcast)),
                 alibi(per_head(setup.has_alibi, setup.alibi, batch, heads)),
                 sinks(optional_span<SinkType<T> const, 1>(setup.has_sinks, setup.sinks, {heads}))};
  if constexpr (sizeof(T) == 1) {
    return std::tuple_cat(
        terms,
        std::tuple{descale(per_head(setup.has_descale_q, setup.descale_q, batch, heads_kv),
                           per_head(setup.has_descale_k, setup.descale_k, batch, heads_kv),
                           per_head(setup.has_descale_v, setup.descale_v, batch, heads_kv))});
  } else {
    return terms;
  }
}

/// Refuses a bias or sinks of another type than goes with elements of type T, and factors of float8
/// beside other elements.
template <class T, class Out = T>
void expect_term_types(char const* operation, AttentionSetup const& setup) {
  if (setup.has_sinks) visit_dtype<SinkType<T>>(operation, setup.sinks, [](auto) {});
  if (setup.has_bias) visit_dtype<Out>(operation, setup.bias, [](auto) {});
  if (sizeof(T) != 1 && setup.has_descale())
    fail(ATTIKOS_UNSUPPORTED, operation, ": descale factors go with float8 tensors");
}

/// Offsets of packed sequences.
inline auto offsets(Tensor const& tensor) { return tensor.span<std::int32_t const, 1>(); }

/// A page table; null data where the cache is not paged.
inline auto page_table(AttentionSetup const& setup, std::int64_t page_size) {
  return attikos::paged(optional_span<std::int32_t const, 2>(setup.has_pages, setup.pages, {1, 1}),
                        page_size);
}

/// Lengths for padded tensors; null data for those that were not given.
inline auto padded_lengths(AttentionSetup const& setup, std::int64_t entries_q,
                           std::int64_t entries_kv) {
  using Int = std::int32_t const;
  return lengths(optional_span<Int, 1>(setup.has_lengths_q, setup.lengths_q, {entries_q}),
                 optional_span<Int, 1>(setup.has_lengths, setup.lengths_kv, {entries_kv}));
}

/// Calls f(rank of q, rank of k, batch, validate, storage...): the ranks as integral constants,
/// `storage` being the wrappers that say where the sequences lie, `validate(exec)` what reads their
/// lengths and offsets on the device. Attention (`Decode` false) takes padded tensors of rank 3,
/// too; decode packed queries over padded keys.
template <bool Decode, class F>
void visit_storage(AttentionSetup const& setup, Tensor const& q, Tensor const& k, F const& f) {
  constexpr std::integral_constant<int, 3> three{};
  constexpr std::integral_constant<int, 4> four{};
  auto const extent = [](Tensor const& x) {
    return x.extent[static_cast<std::size_t>(x.rank - 2)];
  };
  if (setup.has_cu_kv) {
    auto const cu_q = offsets(setup.cu_q);
    auto const cu_kv = offsets(setup.cu_kv);
    auto const validate = [&](auto const& exec) {
      validate_cu_seqlens(exec, cu_q, extent(q));
      validate_cu_seqlens(exec, cu_kv, extent(k));
    };
    f(three, three, cu_q.extent(0) - 1, validate, cu_seqlens(cu_q, cu_kv));
    return;
  }
  std::int64_t const capacity = extent(k) * (setup.has_pages ? setup.pages.extent[1] : 1);
  auto const with_pages = [&](auto rank_q, std::int64_t batch, auto const& validate,
                              auto const&... storage) {
    if (setup.has_pages) {
      f(rank_q, four, batch, validate, storage..., page_table(setup, k.extent[2]));
    } else if constexpr (Decode || rank_q == four) {
      f(rank_q, four, batch, validate, storage...);
    }
  };
  if (setup.has_cu_q) {
    auto const cu_q = offsets(setup.cu_q);
    std::int64_t const batch = cu_q.extent(0) - 1;
    auto const kv = padded_lengths(setup, batch, batch).kv;
    auto const validate = [&](auto const& exec) {
      validate_cu_seqlens(exec, cu_q, extent(q));
      if (setup.has_lengths) validate_lengths(exec, kv, capacity);
    };
    with_pages(three, batch, validate, cu_seqlens(cu_q, none), lengths(none, kv));
    return;
  }
  auto const valid =
      padded_lengths(setup, q.extent[0], setup.has_pages ? q.extent[0] : k.extent[0]);
  auto const validate = [&](auto const& exec) {
    if (setup.has_lengths_q) validate_lengths(exec, valid.q, extent(q));
    if (setup.has_lengths) validate_lengths(exec, valid.kv, capacity);
  };
  if constexpr (!Decode) {
    if (q.rank == 3) {
      f(three, three, std::int64_t{1}, validate, valid);
      return;
    }
  }
  with_pages(four, q.extent[0], validate, valid);
}

}  // namespace attikos::c
