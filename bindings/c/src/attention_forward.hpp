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
    std::int64_t const pages = setup.has_pages ? setup.pages.extent[1] * k.extent[2] : 0;
    if (setup.has_cu_q) {
      auto const cu_q = offsets(setup.cu_q);
      std::int64_t const batch = cu_q.extent(0) - 1;
      auto const check_q = [&](auto const& exec) { validate_cu_seqlens(exec, cu_q, q.extent[1]); };
      if (setup.has_pages) {
        auto const kv = padded_lengths(setup, batch, batch).kv;
        auto const check = [&](auto const& exec) {
          check_q(exec);
          if (setup.has_lengths) validate_lengths(exec, kv, pages);
        };
        run<T, Out, 3, 4>(batch, check, cu_seqlens(cu_q, detail::Absent{}),
                          page_table(setup, k.extent[2]), lengths(detail::Absent{}, kv));
      } else {
        auto const cu_kv = offsets(setup.cu_kv);
        auto const check = [&](auto const& exec) {
          check_q(exec);
          validate_cu_seqlens(exec, cu_kv, k.extent[1]);
        };
        run<T, Out, 3, 3>(batch, check, cu_seqlens(cu_q, cu_kv));
      }
      return;
    }
    auto const valid =
        padded_lengths(setup, q.extent[0], setup.has_pages ? q.extent[0] : k.extent[0]);
    auto const check = [&](auto const& exec) {
      auto const at = static_cast<std::size_t>(q.rank - 2);
      if (setup.has_lengths_q) validate_lengths(exec, valid.q, q.extent[at]);
      if (setup.has_lengths)
        validate_lengths(exec, valid.kv, setup.has_pages ? pages : k.extent[at]);
    };
    if (setup.has_pages) {
      run<T, Out, 4, 4>(q.extent[0], check, valid, page_table(setup, k.extent[2]));
    } else if (q.rank == 4) {
      run<T, Out, 4, 4>(q.extent[0], check, valid);
    } else {
      run<T, Out, 3, 3>(1, check, valid);
    }
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
