// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <attikos/attention/attention.hpp>

#include "attention_call.hpp"

namespace attikos::c {
namespace {

constexpr char const* operation = "attention";

struct Call {
  attikos_context const& context;
  Tensor q, k, v, out, lse;
  bool has_lse;
  AttentionSetup setup;

  /// The call itself, `storage` being the wrappers that say where sequences lie. `validate(exec)`
  /// reads what the device holds.
  template <class T, int RankQ, int RankKv, class Validate, class... Storage>
  void run(std::int64_t batch, Validate const& validate, Storage const&... storage) const {
    using Acc = typename ElementTraits<T>::Accumulator;
    auto const sq = q.span<T const, RankQ>();
    auto const sk = k.span<T const, RankKv>();
    auto const sv = v.span<T const, RankKv>();
    auto const so = out.span<T, RankQ>();
    std::array<std::int64_t, RankQ - 1> rows{};
    for (std::size_t r = 0; r < RankQ - 1; ++r) rows[r] = sq.extent(r);
    auto const sl = optional_span<Acc, RankQ - 1>(has_lse, lse, rows);
    expect_term_types<T>(operation, setup);
    std::apply(
        [&](auto const&... terms) {
          run_on(context, [&](auto const& exec) {
            if (setup.check) validate(exec);
            attention(exec, sq, sk, sv, so, sl, setup.options, terms..., storage...);
          });
        },
        attention_terms<T>(setup, batch, sq.extent(RankQ - 3)));
  }

  template <class T>
  void run() const {
    std::int64_t const pages = setup.has_pages ? setup.pages.extent[1] * k.extent[2] : 0;
    auto const paged = attikos::paged(
        optional_span<std::int32_t const, 2>(setup.has_pages, setup.pages, {1, 1}), k.extent[2]);
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
        run<T, 3, 4>(batch, check, cu_seqlens(cu_q, detail::Absent{}), paged,
                     lengths(detail::Absent{}, kv));
      } else {
        auto const cu_kv = offsets(setup.cu_kv);
        auto const check = [&](auto const& exec) {
          check_q(exec);
          validate_cu_seqlens(exec, cu_kv, k.extent[1]);
        };
        run<T, 3, 3>(batch, check, cu_seqlens(cu_q, cu_kv));
      }
      return;
    }
    auto const valid =
        padded_lengths(setup, q.extent[0], setup.has_pages ? q.extent[0] : k.extent[0]);
    auto const check = [&](auto const& exec) {
      if (!setup.has_lengths) return;
      auto const at = static_cast<std::size_t>(q.rank - 2);
      validate_lengths(exec, valid.q, q.extent[at]);
      validate_lengths(exec, valid.kv, setup.has_pages ? pages : k.extent[at]);
    };
    if (setup.has_pages) {
      run<T, 4, 4>(q.extent[0], check, valid, paged);
    } else if (q.rank == 4) {
      run<T, 4, 4>(q.extent[0], check, valid);
    } else {
      run<T, 3, 3>(1, check, valid);
    }
  }
};

}  // namespace
}  // namespace attikos::c

extern "C" {

attikos_status attikos_attention(attikos_context* context, attikos_tensor const* q,
                                 attikos_tensor const* k, attikos_tensor const* v,
                                 attikos_tensor const* out, attikos_tensor const* lse,
                                 attikos_attention_options const* options) {
  using namespace attikos::c;
  return guarded([&] {
    auto const& where = expect_context(operation, context);
    Call call{where,
              {},
              {},
              {},
              {},
              {},
              lse != nullptr,
              read_attention_options(operation, options, where)};
    call.q = read_tensor(operation, "q", q, 3, 4, where);
    call.k = read_tensor(operation, "k", k, 3, 4, where);
    call.v = read_tensor(operation, "v", v, 3, 4, where);
    call.out = read_tensor(operation, "out", out, 3, 4, where);
    expect_attention_ranks(operation, call.setup, call.q, {&call.out}, call.k, call.v);
    for (Tensor const* tensor : {&call.k, &call.v, &call.out})
      expect_same_dtype(operation, *tensor, call.q);
    if (call.has_lse)
      call.lse = read_tensor(operation, "lse", lse, call.q.rank - 1, call.q.rank - 1, where);
    visit_floating(operation, call.q, [&]<class T>(std::type_identity<T>) {
      if (call.has_lse)
        visit_dtype<typename attikos::ElementTraits<T>::Accumulator>(operation, call.lse,
                                                                     [](auto) {});
      call.run<T>();
    });
  });
}
}
