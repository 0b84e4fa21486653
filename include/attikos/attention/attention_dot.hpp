// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Flash attention of bfloat16 on a host's dot-product instructions, which host_isa() chose.
///
/// A team takes some hundred rows of queries, of one head or of several that share keys. Each block
/// of 256 keys and values is packed once for all of them; then, 32 rows at a time, scores, weights
/// and the weighted sum of values stay in the first two caches. Weights are rounded to bfloat16 for
/// the second product, as kernels for tensor cores do. The blocks of keys, and with them the order
/// of a row's sums, follow from the problem alone.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/attention/attention_dot_blocks.hpp>
#include <attikos/attention/attention_options.hpp>
#include <attikos/attention/attention_scores.hpp>
#include <attikos/attention/attention_store.hpp>
#include <attikos/core/launch.hpp>
#include <string>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

#if defined(ATTIKOS_HOST_X86)

template <class Exec, class Out, class Functors>
struct AttentionDot : AttentionDotBlocks {
  using Head = AttentionHead<T, Out>;
  using Traits = TileTraits<Exec, Acc>;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::Schedule<Kokkos::Dynamic>>;
  using Team = typename Policy::member_type;
  static constexpr int features = most, keys = most;  ///< of a pass, of a block
  /// Rows that are multiplied at once: two tiles of AMX, three register blocks of AVX-512.
  static constexpr int few_rows = 2 * tile_rows, most_rows = 3 * host::avx512::block_rows;
  static constexpr int score_stride = keys + 16;  ///< keeps rows out of one another's cache sets

  abi::AttentionArgs g;
  Functors functors;
  HostIsa isa;
  int rows = 0;   ///< of a head that a team takes, a multiple of step()
  int heads = 1;  ///< that share keys and that a team takes
  std::int64_t tiles_q = 0;

  int step() const { return isa >= HostIsa::amx ? few_rows : most_rows; }
  int d() const { return static_cast<int>(g.head_dim); }
  int dv() const { return static_cast<int>(g.head_dim_v); }
  int passes() const { return (d() + features - 1) / features; }
  int out_stride() const { return round_up(dv(), panel); }
  /// Rows of a team, of which tiles of 16 may write the last whole.
  std::int64_t all_rows() const { return std::int64_t{heads} * rows; }

  std::int64_t query_words() const { return (all_rows() + 16) * row_words * passes(); }
  std::int64_t key_words() const { return right_words(keys, d()); }
  std::int64_t value_words() const { return right_words(dv(), keys); }
  std::int64_t gathered_elements() const {
    return g.page_table == nullptr ? 0 : std::int64_t{keys} * std::max(d(), dv());
  }
  std::size_t bytes() const {
    return scratch_bytes<Words>(query_words()) + scratch_bytes<Words>(key_words()) +
           scratch_bytes<Words>(value_words()) + scratch_bytes<T>(gathered_elements()) +
           scratch_bytes<Words>(48 * row_words) + scratch_bytes<Acc>(48 * score_stride) +
           scratch_bytes<Acc>((all_rows() + 16) * out_stride()) +
           scratch_bytes<Acc>(all_rows() * 16) + 2 * scratch_bytes<Acc>(all_rows());
  }

  /// Scratch of a team.
  struct Memory {
    Words *queries, *keys, *values, *weights;
    T* gathered;
    Acc *scores, *out, *sums, *maximum, *total;
  };

  /// A block of packed keys and values.
  struct KeyBlock {
    std::int64_t first;
    int count;
    bool all_finite;  ///< else packed values are 0 where they are not
  };

  void operator()(Team const& team) const {
    if (isa >= HostIsa::amx) {
      host::amx::Tiles tiles;
      run(team, &tiles);
    } else {
      run(team, nullptr);
    }
  }

  void run(Team const& team, host::amx::Tiles* tiles) const {
    int const level = Traits::scratch_level;
    Memory m{};
    m.queries = scratch<Words>(team, level, query_words());
    m.keys = scratch<Words>(team, level, key_words());
    m.values = scratch<Words>(team, level, value_words());
    m.gathered = scratch<T>(team, level, gathered_elements());
    m.weights = scratch<Words>(team, level, 48 * row_words);
    m.scores = scratch<Acc>(team, level, 48 * score_stride);
    m.out = scratch<Acc>(team, level, (all_rows() + 16) * out_stride());
    m.sums = scratch<Acc>(team, level, all_rows() * 16);
    m.maximum = scratch<Acc>(team, level, all_rows());
    m.total = scratch<Acc>(team, level, all_rows());

    // Late tiles of a causal problem see the most keys: they go first.
    std::int64_t const groups = query_groups(g) / heads;
    std::int64_t const group = team.league_rank() % groups * heads;
    QueryTile const where = locate_tile(g, group, tiles_q - 1 - team.league_rank() / groups, rows);
    std::int64_t const row0 = where.row0;
    auto const head_of = [&](int h) { return Head(g, where.sequence, (group + h) % g.heads_q); };
    std::int64_t begin = g.seqlen_kv, end = 0;
    for (int h = 0; h < heads; ++h) {
      Head const head = head_of(h);
      if (row0 >= head.rows) return;  // a slot that no packed sequence needs
      int const live = live_rows(head, row0);
      if constexpr (Functors::has_block_mask)
        std::fill_n(m.out + h * rows * out_stride(), rows * out_stride(), Acc(0));
      for (int i = h * rows; i < (h + 1) * rows; ++i) {
        m.maximum[i] = negative_infinity<Acc>();
        for (int l = 0; l < 16; ++l) m.sums[i * 16 + l] = Acc(0);
      }
      if (live == 0) continue;
      begin = std::min(begin, head.first(row0) / keys * keys);
      end = std::max(end, head.last(row0 + live - 1));
      for (int p = 0; p < passes(); ++p)
        host::avx512::pack_left<Kind>(
            queries(m, p, h * rows),
            factor(head.q.at(row0, p * features), head.q.row_stride, head.q.col_stride), live,
            std::min(features, d() - p * features));
    }
    for (std::int64_t j0 = begin; j0 < end; j0 += keys) {
      if constexpr (Functors::has_block_mask) {
        bool seen = false;
        for (int h = 0; h < heads && !seen; ++h) {
          Head const head = head_of(h);
          ColumnRange const left = seen_columns<false, Functors>(
              g, head, row0, live_rows(head, row0), j0, std::min<std::int64_t>(end, j0 + keys));
          seen = left.begin < left.end;
        }
        if (!seen) continue;
      }
      KeyBlock const block =
          pack(m, head_of(0), j0, static_cast<int>(std::min<std::int64_t>(end - j0, keys)));
      for (int h = 0; h < heads; ++h) {
        Head const head = head_of(h);
        int const live = live_rows(head, row0);
        for (int i = 0; i < live; i += step())
          add_block(team, tiles, m, head, block, row0 + i, h * rows + i,
                    std::min(step(), live - i));
      }
    }
    for (int h = 0; h < heads; ++h) store(team, m, head_of(h), row0, h * rows);
  }

  int live_rows(Head const& head, std::int64_t row0) const {
    return static_cast<int>(clamp_index(head.len_q - row0, 0, rows));
  }

  Words* queries(Memory const& m, int pass, std::int64_t row) const {
    return m.queries + ((all_rows() + 16) * pass + row) * row_words;
  }

  /// Rows of a block, side by side: where they lie, or a copy of those that pages scatter.
  template <class At>
  Block<T const> gather(Memory const& m, Head const& head, Block<T const> const& x, int width,
                        KeyBlock const& block, At const& at) const {
    if (head.pages == nullptr) return {at(block.first), x.row_stride, x.col_stride};
    for (int j = 0; j < block.count; ++j) {
      T const* const from = at(block.first + j);
      for (int c = 0; c < width; ++c) m.gathered[j * width + c] = from[c * x.col_stride];
    }
    return {m.gathered, width, 1};
  }

  KeyBlock pack(Memory const& m, Head const& head, std::int64_t first, int count) const {
    KeyBlock block{first, count, true};
    Block<T const> const k =
        gather(m, head, head.k, d(), block, [&](std::int64_t j) { return head.key(j); });
    pack_rows_right(m.keys, k, count, d(), keys);
    Block<T const> const v =
        gather(m, head, head.v, dv(), block, [&](std::int64_t j) { return head.value(j); });
    block.all_finite = pack_features_right(m.values, v, count, dv());
    return block;
  }

  /// What a block of keys gives rows [row, row + count) of a head, which are the team's from `at`.
  void add_block(Team const& team, host::amx::Tiles* tiles, Memory const& m, Head const& head,
                 KeyBlock const& block, std::int64_t row, std::int64_t at, int count) const {
    // Columns of the block that any of the rows sees, from a whole panel on.
    auto const column = [&](std::int64_t j) {
      return static_cast<int>(clamp_index(j - block.first, 0, block.count));
    };
    int low = column(head.first(row)) / panel * panel;
    int high = column(head.last(row + count - 1));
    if constexpr (Functors::has_block_mask) {
      ColumnRange const seen =
          seen_columns<false, Functors>(g, head, row, count, block.first + low, block.first + high);
      low = column(seen.begin) / panel * panel;
      high = seen.begin < seen.end ? column(seen.end) : low;
    }
    if (low >= high) return;
    int const whole = round_up(high, panel);
    Words const* right = m.keys;
    for (int p = 0; p < d(); p += features) {
      multiply(tiles, queries(m, p / features, at), right + low / panel * pass_panel(p, d()),
               m.scores, score_stride, count, std::min(whole, block.count) - low,
               std::min(features, d() - p), p > 0, {pass_panel(p, d())});
      right += pass_panel(p, d()) * (keys / panel);
    }
    if (d() == 0)
      for (int i = 0; i < count; ++i) std::fill_n(m.scores + i * score_stride, whole - low, Acc(0));
    bool const terms = has_terms<Functors>(g) || !is_plain_scale(head.scale);
    host::avx512::VisibleColumns visible[most_rows];
    for (int i = 0; i < count; ++i)
      visible[i] = terms ? host::avx512::VisibleColumns{0, high - low}
                         : host::avx512::VisibleColumns{column(head.first(row + i)) - low,
                                                        column(head.last(row + i)) - low};
    if (terms)
      score_tile<Traits>(team, g, functors, head, row, block.first + low, m.scores, score_stride,
                         count, high - low);
    Acc* const out = m.out + at * out_stride();
    host::avx512::softmax_rows(m.scores, score_stride, m.weights, visible, count, whole - low,
                               host::avx512::WeightScale(terms ? Acc(1) : head.scale),
                               {m.maximum + at, m.sums + at * 16, out, out_stride()}, out_stride());
    // In a block before this one; with a block mask, which may leave out any, sums begin at 0.
    bool const begun = Functors::has_block_mask || head.first(row) < block.first;
    multiply(tiles, m.weights, m.values, out, out_stride(), count, dv(), whole - low, begun,
             {host::avx512::panel_words<Kind>(block.count), low / Kind::values});
    if (!block.all_finite)
      add_not_finite(
          m.weights, count, [&](int j) { return head.value(block.first + low + j); }, high - low,
          head.v.col_stride, dv(), out, out_stride());
  }

  /// What weights are taken from scores with, as they come out of the product.
  static bool is_plain_scale(Acc scale) { return scale > Acc(1e-30) && scale < Acc(1e30); }

  void store(Team const& team, Memory const& m, Head const& head, std::int64_t row0,
             std::int64_t at) const {
    int const count = static_cast<int>(std::min<std::int64_t>(head.rows - row0, rows));
    // Maxima are those of scores before their scale where that goes into the exponential.
    bool const terms = has_terms<Functors>(g) || !is_plain_scale(head.scale);
    for (std::int64_t i = at; i < at + count; ++i) {
      m.total[i] = sum_of_lanes(m.sums + i * 16);
      if (!terms) m.maximum[i] *= head.scale;
    }
    store_attention_rows<Traits>(
        team, g, head, row0, count,
        SoftmaxState<Acc>{m.maximum + at, m.total + at, m.out + at * out_stride(), out_stride()}, 0,
        static_cast<int>(g.head_dim_v));
  }

  static Acc sum_of_lanes(Acc const* sums) {
    constexpr int W = host::lanes<Acc>;
    host::Vec<Acc> total = host::load<Acc, W>(sums);
    for (int l = W; l < 16; l += W) total += host::load<Acc, W>(sums + l);
    return host::reduce_sum<Acc, W>(total);
  }
};

/// How many rows of how many heads a team takes: some hundred, so that packing keys and values
/// costs little, fewer where threads would idle or caches overflow.
template <class Kernel, class Exec>
void choose_attention_dot_tile(Kernel& kernel, Exec const& exec) {
  constexpr std::int64_t most_rows = 512, most_bytes = std::int64_t{3} << 19;
  abi::AttentionArgs const& g = kernel.g;
  std::int64_t const group = g.heads_q / g.heads_kv;
  std::int64_t const step = g.seqlen_q <= 16 ? 16 : kernel.step();
  auto const whole = [&](std::int64_t rows) {
    return static_cast<int>(round_up(std::max<std::int64_t>(rows, 1), step));
  };
  kernel.rows = whole(std::min(g.seqlen_q, most_rows));
  kernel.heads = static_cast<int>(std::clamp<std::int64_t>(most_rows / kernel.rows, 1, group));
  auto const fewer = [&] {
    if (kernel.heads > 1)
      kernel.heads /= 2;
    else
      kernel.rows = whole(kernel.rows / 2);
    while (group % kernel.heads != 0) --kernel.heads;
  };
  while (group % kernel.heads != 0) --kernel.heads;
  auto const teams = [&] { return query_tiles(g, kernel.rows) * query_groups(g) / kernel.heads; };
  std::int64_t const wanted = 4 * concurrency_of(exec);
  while (teams() < wanted && (kernel.heads > 1 || kernel.rows > 2 * step)) fewer();
  while (static_cast<std::int64_t>(kernel.bytes()) > most_bytes &&
         (kernel.heads > 1 || kernel.rows > step))
    fewer();
}

/// Launches attention on dot products. Asynchronous on `exec`.
template <class Out, class Exec, class Functors>
void attention_dot(Exec const& exec, abi::AttentionArgs const& args, Functors const& functors) {
  using Kernel = AttentionDot<Exec, Out, Functors>;
  Kernel kernel{{}, args, functors, host_isa()};
  choose_attention_dot_tile(kernel, exec);
  kernel.tiles_q = query_tiles(args, kernel.rows);
  typename Kernel::Policy policy(
      exec, checked_league("attention", kernel.tiles_q * (query_groups(args) / kernel.heads)), 1,
      1);
  policy.set_scratch_size(Kernel::Traits::scratch_level,
                          Kokkos::PerTeam(checked_scratch("attention", kernel.bytes())));
  launch("attention", portable_name(AttentionAlgorithm::flash), policy, kernel);
}

#endif

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
