// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// validate_append_kv(): reads the lengths and the page table of an append_kv call and says which
/// sequence does not fit.
#pragma once

#include <algorithm>
#include <attikos/append_kv/append_kv_arguments.hpp>
#include <attikos/attention/validate_cu_seqlens.hpp>
#include <attikos/attention/validate_page_table.hpp>
#include <attikos/core/launch.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Finds the first sequence whose lengths are wrong or whose new tokens do not fit: its number as
/// the value to minimize, both lengths beside it.
struct FirstUnfitAppend {
  using Found = Kokkos::MinLoc<std::int64_t, std::int64_t>;
  TokenLayout tokens;
  std::int32_t const* used;  ///< null: every sequence is empty
  std::int64_t used_stride, seqlen_new, capacity;

  /// Two lengths in one number, which is what a reduction carries.
  static KOKKOS_INLINE_FUNCTION std::int64_t pack(std::int32_t in_use, std::int64_t count) {
    constexpr std::int64_t most = INT32_MAX;
    auto const low = static_cast<std::uint32_t>(count > most ? most : count);
    return static_cast<std::int64_t>(
        static_cast<std::uint64_t>(static_cast<std::uint32_t>(in_use)) << 32 | low);
  }
  static std::int32_t in_use(std::int64_t packed) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(packed >> 32));
  }
  static std::int32_t count(std::int64_t packed) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(packed));
  }

  KOKKOS_INLINE_FUNCTION std::int32_t before(std::int64_t b) const {
    return used == nullptr ? 0 : used[b * used_stride];
  }
  KOKKOS_INLINE_FUNCTION std::int64_t fresh(std::int64_t b) const {
    if (tokens.offsets.data != nullptr) return tokens.offsets[b + 1] - tokens.offsets[b];
    return tokens.lengths == nullptr ? seqlen_new : tokens.lengths[b * tokens.lengths_stride];
  }

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t b, Found::value_type& found) const {
    std::int32_t const in_use = before(b);
    std::int64_t const count = fresh(b);
    bool const fits =
        in_use >= 0 && count >= 0 && count <= seqlen_new && in_use + count <= capacity;
    if (!fits && b < found.val) found = {b, pack(in_use, count)};
  }
};

/// Positions of each sequence once the new tokens are there.
struct LengthsAfterAppend {
  FirstUnfitAppend append;
  KOKKOS_INLINE_FUNCTION std::int64_t operator()(std::int64_t b) const {
    return append.before(b) + append.fresh(b);
  }
};

/// The same of a call without static types.
template <ExecutionSpace Exec>
void validate_append_kv_run(Exec const& exec, AppendKvTensors const& t) {
  using Search = FirstUnfitAppend;
  constexpr char const* operation = "validate_append_kv";
  auto const tokens = append_kv_tokens(t);
  std::int64_t const seqlen_new = t.k_new.with_rank(4).extent[2];
  std::int64_t const capacity =
      t.paged() ? t.page_table.extent[1] * t.page_size : t.k_cache.extent[2];
  Search search{tokens, nullptr, 0, seqlen_new, capacity};
  if (t.cache_lengths.given()) {
    auto const ref = lengths_ref(operation, "cache_lengths", t.cache_lengths, tokens.batch,
                                 "sequence of the batch");
    search.used = ref.data;
    search.used_stride = ref.stride[0];
  }
  if (t.packed()) validate_offsets(exec, t.cu_kv, seqlen_new);
  auto const found = find_in(operation, exec, tokens.batch, search);
  if (tokens.batch > 0 && found.val < tokens.batch)
    raise<ShapeError>(operation, ": sequence ", found.val, " has ", Search::in_use(found.loc),
                      " positions in use and ", Search::count(found.loc),
                      " new tokens; expected from 0 to ", seqlen_new,
                      " new tokens, and room for both in the ", capacity,
                      " positions of one sequence of k_cache");
  if (t.paged())
    validate_pages(exec, t.page_table, t.page_size, t.k_cache.extent[0],
                   LengthsAfterAppend{search});
}

}  // namespace detail

/// Checks the lengths of an append_kv() call, which itself leaves out what does not fit: every
/// sequence has from 0 on positions in use, from 0 to seqlen_new new tokens, and room for both in
/// its part of the cache; offsets of packed tokens ascend; and the pages of all these positions are
/// pages of the cache. Throws ShapeError naming the first sequence of which that is not so. This
/// reads device memory: it fences `exec`.
///
/// \param k_new    as append_kv() takes it
/// \param k_cache  likewise
/// \param extras   those of the append_kv() call that say how sequences lie: cache_lengths,
///                 new_lengths, cu_seqlens, paged; others are not looked at
template <ExecutionSpace Exec, TensorLike KNew, TensorLike KCache, class... Extras>
void validate_append_kv(Exec const& exec, KNew const& k_new, KCache const& k_cache,
                        Extras const&... extras) {
  detail::AppendKvTensors t;
  t.k_new = detail::any_tensor(k_new);
  t.k_cache = detail::any_tensor(k_cache);
  detail::append_kv_storage<Exec, rank_of<KNew>>(t, extras...);
  detail::validate_append_kv_run(exec, t);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
