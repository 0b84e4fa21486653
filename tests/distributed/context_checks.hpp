// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One problem of context-parallel attention: every rank makes all of it from one seed, hands its
// shard in, and compares what it gets with float64.
#pragma once

#include <attikos/core/host_isa.hpp>
#include <attikos/distributed/attention.hpp>
#include <attikos/reference/attention_reference.hpp>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "distributed/ranks.hpp"
#include "support/backends.hpp"
#include "support/comparison.hpp"
#include "support/shapes.hpp"
#include "support/tensors.hpp"
#include "support/tolerance_decode.hpp"

namespace attikos::test {

using distributed::ContextShards;
using distributed::Shards;
using distributed::Strategy;

/// Those that the communicator's ranks allow.
inline std::vector<Strategy> all_strategies() {
  std::vector<Strategy> all{Strategy::ring, Strategy::all_gather, Strategy::all_to_all};
  int const per_node = ranks().machine().ranks_per_node;
  if (per_node > 1 && ranks().size() > per_node && ranks().size() % per_node == 0)
    all.push_back(Strategy::two_level);
  return all;
}

struct ContextCase {
  std::int64_t batch, heads_q, heads_kv, d, dv;
  ContextShards shards;
  distributed::AttentionOptions options = {};
  std::vector<int> lengths_q = {}, lengths_kv = {};
  bool sinks = false;
  Layout layout = Layout::right;
};

inline std::string describe(ContextCase const& p) {
  auto const& o = p.options;
  std::ostringstream text;
  text << ranks().size() << " ranks, " << strategy_name(o.strategy) << ", batch " << p.batch
       << " heads " << p.heads_q << "/" << p.heads_kv << " d " << p.d << "/" << p.dv << " total "
       << p.shards.q.total() << "/" << p.shards.kv.total() << " sequences "
       << p.shards.q.sequences() << " causal " << o.causal << " top_left "
       << (o.causal_alignment == CausalAlignment::top_left) << " window " << o.window_left << "/"
       << o.window_right << " softcap " << o.softcap << " sinks " << p.sinks << " invariant "
       << (o.determinism == distributed::Determinism::rank_invariant) << " lengths";
  for (std::size_t b = 0; b < p.lengths_kv.size(); ++b)
    text << ' ' << p.lengths_q[b] << '/' << p.lengths_kv[b];
  return text.str();
}

/// Calls f(row of the rank, sequence, position, row of the whole) for all rows of a rank.
template <class F>
void for_each_row(Shards const& shards, int rank, F const& f) {
  for (auto const& piece : shards.pieces(rank))
    for (std::int64_t i = piece.begin; i < piece.end; ++i)
      f(piece.local + i - piece.begin, piece.sequence, i, shards.offset(piece.sequence) + i);
}

template <class T, class Exec = Kokkos::DefaultExecutionSpace>
struct ContextRun {
  using Acc = Accumulator<T>;
  ContextCase p;
  Tensor<T, 4, Exec> all_q, all_k, all_v;  // the whole, on every rank
  Tensor<T, 4, Exec> q, k, v, out;         // this rank's
  Tensor<Acc, 3, Exec> lse;
  Tensor<float, 1, Exec> sinks;
  Tensor<std::int32_t, 1, Kokkos::DefaultHostExecutionSpace> lengths_q, lengths_kv;

  explicit ContextRun(ContextCase const& problem)
      : p(problem),
        all_q({p.batch, p.heads_q, p.shards.q.total(), p.d}),
        all_k({p.batch, p.heads_kv, p.shards.kv.total(), p.d}),
        all_v({p.batch, p.heads_kv, p.shards.kv.total(), p.dv}),
        q({p.batch, p.heads_q, p.shards.q.rows(ranks().rank()), p.d}, p.layout),
        k({p.batch, p.heads_kv, p.shards.kv.rows(ranks().rank()), p.d}, p.layout),
        v({p.batch, p.heads_kv, p.shards.kv.rows(ranks().rank()), p.dv}, p.layout),
        out({p.batch, p.heads_q, p.shards.q.rows(ranks().rank()), p.dv}, p.layout),
        lse({p.batch, p.heads_q, p.shards.q.rows(ranks().rank())}, p.layout),
        sinks({p.heads_q}, Layout::strided),
        lengths_q({p.batch}, Layout::strided),
        lengths_kv({p.batch}, Layout::strided) {
    Random random(static_cast<std::uint64_t>(p.shards.q.total() * 131 + p.d));
    all_q.fill_uniform(random);
    all_k.fill_uniform(random);
    fill_values(all_v, random);
    sinks.fill_uniform(random, -1, 3);
    for (std::int64_t b = 0; b < p.batch && !p.lengths_kv.empty(); ++b) {
      lengths_q(b) = p.lengths_q[sz(b)];
      lengths_kv(b) = p.lengths_kv[sz(b)];
    }
    lengths_q.upload();
    lengths_kv.upload();
    take_shard(all_q, q, p.shards.q, p.lengths_q);
    take_shard(all_k, k, p.shards.kv, p.lengths_kv);
    take_shard(all_v, v, p.shards.kv, p.lengths_kv);
  }

  /// This rank's rows; padding becomes NaN.
  static void take_shard(Tensor<T, 4, Exec>& all, Tensor<T, 4, Exec>& part, Shards const& shards,
                         std::vector<int> const& lengths) {
    for_each_row(shards, ranks().rank(),
                 [&](std::int64_t row, std::int64_t, std::int64_t i, std::int64_t at) {
                   for (std::int64_t b = 0; b < part.extent(0); ++b)
                     for (std::int64_t h = 0; h < part.extent(1); ++h)
                       for (std::int64_t c = 0; c < part.extent(3); ++c)
                         part(b, h, row, c) = !lengths.empty() && i >= lengths[sz(b)]
                                                  ? poison<T>()
                                                  : all(b, h, at, c);
                 });
    part.upload();
  }

  void call() {
    out.upload();
    lse.upload();
    Exec const exec;
    auto const run = [&](auto const&... extras) {
      distributed::attention(exec, ranks(), p.shards, q.const_view(), k.const_view(),
                             v.const_view(), out.view(), lse.view(), p.options, extras...);
    };
    auto const some = attikos::sinks(sinks.const_view());
    auto const some_lengths = attikos::lengths(lengths_q.const_view(), lengths_kv.const_view());
    if (p.sinks && !p.lengths_kv.empty())
      run(some, some_lengths);
    else if (p.sinks)
      run(some);
    else if (!p.lengths_kv.empty())
      run(some_lengths);
    else
      run();
    out.download();
    lse.download();
  }

  /// How often results are joined at most: each time DecodeBound's allowance for two parts.
  double joins() const {
    auto const& o = p.options;
    std::int64_t pieces = 0;
    if (o.determinism == distributed::Determinism::rank_invariant) {
      for (std::int64_t s = 0; s < p.shards.kv.sequences(); ++s)
        pieces = std::max(pieces, p.shards.kv.length(s) / o.block + 1);
      return std::ceil(std::log2(static_cast<double>(pieces + 1))) + 1;
    }
    for (int r = 0; r < p.shards.kv.ranks(); ++r)
      pieces += static_cast<std::int64_t>(p.shards.kv.pieces(r).size());
    return static_cast<double>(pieces);
  }

  void compare(std::string const& name) {
    // For their product with values: on hosts those of bfloat16's dot products, which serve it.
    bool const rounded_weights = std::is_same_v<T, bfloat16> && host_isa() >= HostIsa::avx512_bf16;
    Comparison compare_out(name, describe(p), stored_as<T>());
    Comparison compare_lse(name + "/lse", describe(p));
    double const scale =
        p.options.softmax_scale != 0 ? p.options.softmax_scale : 1 / std::sqrt(double(p.d));
    auto const& o = p.options;
    for_each_row(
        p.shards.q, ranks().rank(),
        [&](std::int64_t row, std::int64_t s, std::int64_t i, std::int64_t at) {
          std::int64_t const first = p.shards.kv.offset(s);
          for (std::int64_t b = 0; b < p.batch; ++b) {
            std::int64_t const len_q =
                p.lengths_q.empty() ? p.shards.q.length(s) : p.lengths_q[sz(b)];
            std::int64_t const len_kv =
                p.lengths_kv.empty() ? p.shards.kv.length(s) : p.lengths_kv[sz(b)];
            std::int64_t const off =
                o.causal_alignment == CausalAlignment::top_left ? 0 : len_kv - len_q;
            for (std::int64_t h = 0; h < p.heads_q; ++h) {
              std::int64_t const g = h / (p.heads_q / p.heads_kv);
              reference::AttentionTerms terms;
              terms.scale = scale;
              terms.softcap = o.softcap;
              terms.sees = [&](std::int64_t j) {
                std::int64_t const ahead = j - i - off;
                return !(o.causal && ahead > 0) &&
                       !(o.window_left >= 0 && ahead < -o.window_left) &&
                       !(o.window_right >= 0 && ahead > o.window_right);
              };
              if (p.sinks) terms.sink = sinks.value(h);
              auto const want = reference::attention_row(
                  i < len_q ? len_kv : 0, p.d, p.dv, terms,
                  [&](std::int64_t c) { return all_q.value(b, h, at, c); },
                  [&](std::int64_t j, std::int64_t c) { return all_k.value(b, g, first + j, c); },
                  [&](std::int64_t j, std::int64_t c) { return all_v.value(b, g, first + j, c); });
              AttentionBound<T> const whole(want, p.d, rounded_weights);
              DecodeBound<T> const joined(want, p.d, 2, rounded_weights);
              for (std::int64_t c = 0; c < p.dv; ++c) {
                auto const column = [&](std::int64_t j) { return all_v.value(b, g, first + j, c); };
                double const once = whole.out(sz(c), column);
                compare_out.add(out.value(b, h, row, c), want.out[sz(c)],
                                once + joins() * (joined.out(sz(c), column) - once), {b, h, at, c});
              }
              compare_lse.add(lse.value(b, h, row), want.lse,
                              whole.lse() + joins() * (joined.lse() - whole.lse()), {b, h, at});
            }
          }
        });
    EXPECT_EQ(out.writes_outside(), 0u) << describe(p);
    EXPECT_EQ(lse.writes_outside(), 0u) << describe(p);
    EXPECT_TRUE(q.unchanged() && k.unchanged() && v.unchanged()) << describe(p);
  }
};

template <class T>
void check_context(ContextCase const& p) {
  ContextRun<T> run(p);
  run.call();
  run.compare(std::string("distributed/attention/") + type_name<T>());
}

/// While it lives kernels on this thread get no workspace.
class NoWorkspace {
 public:
  NoWorkspace() : use_(source()) {}

 private:
  static detail::MemorySource const& source() {
    static detail::MemorySource const none{[](void*, std::size_t) -> void* { return nullptr; },
                                           [](void*, void*) {}, nullptr};
    return none;
  }
  detail::UseMemoryOf use_;
};

/// The same with every strategy that the shape allows.
template <class T>
void check_all_strategies(ContextCase p) {
  for (Strategy strategy : all_strategies()) {
    p.options.strategy = strategy;
    check_context<T>(p);
  }
}

/// Rows of a length dealt out unevenly: the first rank has most, the second none.
inline Shards uneven(std::int64_t length) {
  int const n = ranks().size();
  std::vector<std::int64_t> rows(sz(n), 0);
  std::int64_t left = length;
  for (int r = n - 1; r > 0; --r) {
    if (r == 1 && n > 2) continue;
    rows[sz(r)] = std::min<std::int64_t>(left, 3 * r + 1);
    left -= rows[sz(r)];
  }
  rows[0] = left;
  return Shards::uneven(rows);
}

}  // namespace attikos::test
