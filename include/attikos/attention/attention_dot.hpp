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
#include <attikos/attention/attention_scores.hpp>
#include <attikos/attention/attention_store.hpp>
#include <attikos/core/host_isa.hpp>
#include <attikos/core/launch.hpp>
#include <attikos/host/amx.hpp>
#include <attikos/host/attention_rows.hpp>
#include <attikos/host/dot_product.hpp>
#include <string>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// The largest head_dim whose blocks of keys fit a share of the last-level cache.
inline constexpr std::int64_t attention_dot_head_dim = 4096;

#if defined(ATTIKOS_HOST_X86)

template <class Exec, class Out, class Functors>
struct AttentionDot {
  using T = bfloat16;
  using Acc = float;
  using Kind = host::avx512::Bfloat16Pairs;
  using Head = AttentionHead<T, Out>;
  using Traits = TileTraits<Exec, Acc>;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::Schedule<Kokkos::Dynamic>>;
  using Team = typename Policy::member_type;
  using Words = std::uint32_t;
  /// Features of a pass and keys of a block: what a row of a packed left factor holds at most.
  static constexpr int features = host::avx512::most_units * Kind::values;
  static constexpr int keys = features;
  /// Rows that are multiplied at once: two tiles of AMX, three register blocks of AVX-512.
  static constexpr int tile_rows = 32, most_rows = 36;
  static constexpr int score_stride = keys + 16;  ///< keeps rows out of one another's cache sets

  abi::AttentionArgs g;
  Functors functors;
  HostIsa isa;
  int rows = 0;   ///< of a head that a team takes, a multiple of step()
  int heads = 1;  ///< that share keys and that a team takes
  std::int64_t tiles_q = 0;

  int step() const { return isa >= HostIsa::amx ? tile_rows : most_rows; }
  int d() const { return static_cast<int>(g.head_dim); }
  int dv() const { return static_cast<int>(g.head_dim_v); }
  int passes() const { return (d() + features - 1) / features; }
  int out_stride() const { return round_up(dv(), host::avx512::panel_columns); }
  /// Rows of a team, of which tiles of 16 may write the last whole.
  std::int64_t all_rows() const { return std::int64_t{heads} * rows; }

  std::int64_t query_words() const {
    return (all_rows() + 16) * host::avx512::row_words * passes();
  }
  std::int64_t key_words() const {
    return std::int64_t{keys} * round_up(d(), 2 * host::avx512::vector_columns) / Kind::values;
  }
  std::int64_t value_words() const { return std::int64_t{out_stride()} * keys / Kind::values; }
  std::int64_t gathered_elements() const {
    return g.page_table == nullptr ? 0 : std::int64_t{keys} * std::max(d(), dv());
  }
  std::size_t bytes() const {
    return scratch_bytes<Words>(query_words()) + scratch_bytes<Words>(key_words()) +
           scratch_bytes<Words>(value_words()) + scratch_bytes<T>(gathered_elements()) +
           scratch_bytes<Words>(48 * host::avx512::row_words) +
           scratch_bytes<Acc>(48 * score_stride) +
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
    m.weights = scratch<Words>(team, level, 48 * host::avx512::row_words);
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
    return m.queries + ((all_rows() + 16) * pass + row) * host::avx512::row_words;
  }

  static host::avx512::Factor<std::uint16_t> factor(T const* data, std::int64_t neighbor_stride,
                                                    std::int64_t k_stride) {
    return {reinterpret_cast<std::uint16_t const*>(data), neighbor_stride, k_stride};
  }

  /// Words from a panel of packed keys to the next, in the pass that begins at feature p.
  std::int64_t key_panel(int p) const {
    return host::avx512::panel_words<Kind>(std::min(features, d() - p));
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
    Words* to = m.keys;
    for (int p = 0; p < d(); p += features) {
      host::avx512::pack_right<Kind>(to, factor(k.at(0, p), k.row_stride, k.col_stride),
                                     std::min(features, d() - p), count);
      to += key_panel(p) * (keys / host::avx512::panel_columns);
    }
    Block<T const> const v =
        gather(m, head, head.v, dv(), block, [&](std::int64_t j) { return head.value(j); });
    host::avx512::pack_right<Kind>(m.values, factor(v.data, v.col_stride, v.row_stride), count,
                                   dv());
    std::int64_t const packed = host::avx512::panel_words<Kind>(count) /
                                host::avx512::panel_columns *
                                round_up(dv(), host::avx512::vector_columns);
    block.all_finite = !host::avx512::clear_not_finite(m.values, packed);
    return block;
  }

  static void multiply(host::amx::Tiles* tiles, Words const* left, Words const* right, Acc* sums,
                       int ld, int rows, int cols, int k, bool accumulate,
                       host::avx512::PanelPart const& part) {
    if (tiles != nullptr)
      host::amx::multiply<Kind>(*tiles, left, right, sums, ld, rows, cols, k, accumulate, part);
    else
      host::avx512::multiply<Kind>(left, right, sums, ld, rows, cols, k, accumulate, part);
  }

  /// What a block of keys gives rows [row, row + count) of a head, which are the team's from `at`.
  void add_block(Team const& team, host::amx::Tiles* tiles, Memory const& m, Head const& head,
                 KeyBlock const& block, std::int64_t row, std::int64_t at, int count) const {
    constexpr int panel = host::avx512::panel_columns;
    // Columns of the block that any of the rows sees, from a whole panel on.
    auto const column = [&](std::int64_t j) {
      return static_cast<int>(clamp_index(j - block.first, 0, block.count));
    };
    int const low = column(head.first(row)) / panel * panel;
    int const high = column(head.last(row + count - 1));
    if (low >= high) return;
    int const whole = round_up(high, panel);
    Words const* right = m.keys;
    for (int p = 0; p < d(); p += features) {
      multiply(tiles, queries(m, p / features, at), right + low / panel * key_panel(p), m.scores,
               score_stride, count, std::min(whole, block.count) - low, std::min(features, d() - p),
               p > 0, {key_panel(p)});
      right += key_panel(p) * (keys / panel);
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
    bool const begun = head.first(row) < block.first;  // in a block before this one
    multiply(tiles, m.weights, m.values, out, out_stride(), count, dv(), whole - low, begun,
             {host::avx512::panel_words<Kind>(block.count), low / Kind::values});
    if (!block.all_finite) add_not_finite(m, head, block, low, high, out, count);
  }

  /// What weights are taken from scores with, as they come out of the product.
  static bool is_plain_scale(Acc scale) { return scale > Acc(1e-30) && scale < Acc(1e30); }

  /// out += weight·value of values that are infinite or NaN, where the weight is not 0. What they
  /// make of a sum does not depend on the order.
  void add_not_finite(Memory const& m, Head const& head, KeyBlock const& block, int low, int high,
                      Acc* out, int count) const {
    for (int j = low; j < high; ++j) {
      T const* const value = head.value(block.first + j);
      for (int c = 0; c < dv(); ++c) {
        Acc const v = static_cast<Acc>(value[c * head.v.col_stride]);
        if (v - v == Acc(0)) continue;
        for (int i = 0; i < count; ++i) {
          auto const* const weights =
              reinterpret_cast<T const*>(m.weights + std::int64_t{i} * host::avx512::row_words);
          Acc const w = static_cast<Acc>(weights[j - low]);
          if (w != Acc(0)) out[std::int64_t{i} * out_stride() + c] += w * v;
        }
      }
    }
  }

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
        SoftmaxState<Acc>{m.maximum + at, m.total + at, m.out + at * out_stride(), out_stride()});
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
  Kernel kernel{args, functors, host_isa()};
  choose_attention_dot_tile(kernel, exec);
  kernel.tiles_q = query_tiles(args, kernel.rows);
  typename Kernel::Policy policy(
      exec, checked_league("attention", kernel.tiles_q * (query_groups(args) / kernel.heads)), 1,
      1);
  policy.set_scratch_size(Kernel::Traits::scratch_level,
                          Kokkos::PerTeam(checked_scratch("attention", kernel.bytes())));
  launch("attention", portable_name(AttentionAlgorithm::flash), policy, kernel);
}

/// Whether flash attention has dot products, on hosts that have the instructions. Weight functors
/// change weights after the exponential, where these kernels have none.
template <class Exec, class T, class Functors>
inline constexpr bool uses_attention_dot =
    is_host_space<Exec>&& std::is_same_v<T, bfloat16> && !Functors::has_weight;
#else
template <class Exec, class T, class Functors>
inline constexpr bool uses_attention_dot = false;
#endif

/// Whether flash attention takes this call to dot products. Throws what host_isa() throws.
template <class Exec, class T, class Functors>
bool takes_attention_dot([[maybe_unused]] abi::AttentionArgs const& g) {
  if constexpr (uses_attention_dot<Exec, T, Functors>)
    return host_isa() >= HostIsa::avx512_bf16 &&
           std::max(g.head_dim, g.head_dim_v) <= attention_dot_head_dim;
  return false;
}

/// What flash attention uses of a host's instructions that are chosen at run time, by name; empty:
/// nothing.
template <class Exec, class T, class Functors>
std::string attention_instructions(abi::AttentionArgs const& g) {
  return takes_attention_dot<Exec, T, Functors>(g) ? host_isa_name(host_isa()) : "";
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
