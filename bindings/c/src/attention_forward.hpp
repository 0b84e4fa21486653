// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One forward attention call after all checks that need no element type.
#pragma once

#include <attikos/attention/attention.hpp>

#include "attention_call.hpp"

namespace attikos::c {

struct AttentionCall {
  static constexpr char const* operation = "attention";

  attikos_context const& context;
  Explanation* log;  ///< null: run; else find out what would run
  Tensor q, k, v, out, lse;
  bool has_lse;
  AttentionSetup setup;

  /// Elements of type T, output of type Out.
  template <class T, class Out>
  void run() const {
    visit_storage<false>(
        setup, q, k,
        [&](auto rank_q, auto rank_kv, std::int64_t batch, auto const& validate,
            auto const&... storage) { run<T, Out, rank_q, rank_kv>(batch, validate, storage...); });
  }

 private:
  /// The call itself, `storage` being the wrappers that say where sequences lie. `validate(exec)`
  /// reads what the device holds.
  template <class T, class Out, int RankQ, int RankKv, class Validate, class... Storage>
  void run(std::int64_t batch, Validate const& validate, Storage const&... storage) const {
    using Acc = typename ElementTraits<T>::Accumulator;
    auto const sq = q.span<T const, RankQ>();
    auto const sk = k.span<T const, RankKv>();
    auto const sv = v.span<T const, RankKv>();
    auto const so = out.span<Out, RankQ>();
    std::array<std::int64_t, RankQ - 1> rows{};
    for (std::size_t r = 0; r < RankQ - 1; ++r) rows[r] = sq.extent(r);
    auto const sl = optional_span<Acc, RankQ - 1>(has_lse, lse, rows);
    expect_term_types<T, Out>(operation, setup);
    std::apply(
        [&](auto const&... terms) {
          run_on(context, [&](auto const& exec) {
            if (log != nullptr) {
              *log = explain(op::attention, exec, sq, sk, sv, so, sl, setup.options, terms...,
                             storage...);
              return;
            }
            if (setup.check) validate(exec);
            attention(exec, sq, sk, sv, so, sl, setup.options, terms..., storage...);
          });
        },
        attention_terms<T, Out>(setup, batch, sq.extent(RankQ - 3), sk.extent(RankKv - 3)));
  }
};

/// float8_e4m3 inputs, a float32, float16 or bfloat16 output. See attention_float8.cpp.
void run_float8_attention(AttentionCall const& call);

}  // namespace attikos::c
