// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Caches of keys and values: appending to them, and joining attention over their parts.
#include <attikos/attention/append_kv.hpp>
#include <attikos/attention/merge_states.hpp>

#include "attention_call.hpp"
#include "rope_table.hpp"

namespace attikos::c {
namespace {

struct AppendCall {
  static constexpr char const* operation = "append_kv";

  attikos_context const& context;
  attikos_append_kv_options const& given;
  Tensor k_new, v_new, k_cache, v_cache, lengths, pages, cos, sin, q, q_out;
  bool has_lengths, has_pages, has_tables, has_queries;

  AppendCall(attikos_context const& where, attikos_append_kv_options const& o)
      : context(where),
        given(o),
        has_lengths(o.cache_lengths != nullptr),
        has_pages(o.page_table != nullptr),
        has_tables(o.rotary_cos != nullptr || o.rotary_sin != nullptr),
        has_queries(o.q != nullptr || o.q_out != nullptr) {
    if (has_lengths) {
      lengths = read_tensor(operation, "cache_lengths", o.cache_lengths, 1, 1, context);
      visit_dtype<std::int32_t>(operation, lengths, [](auto) {});
    }
    if (has_pages) {
      pages = read_tensor(operation, "page table", o.page_table, 2, 2, context);
      visit_dtype<std::int32_t>(operation, pages, [](auto) {});
    }
    if (has_tables) {
      cos = read_rope_table(operation, "rotary_cos", o.rotary_cos, context);
      sin = read_rope_table(operation, "rotary_sin", o.rotary_sin, context);
      expect_same_dtype(operation, sin, cos);
    }
    if (has_queries) {
      if (!has_tables)
        fail(ATTIKOS_NULL_ARGUMENT, operation,
             ": queries are rotated but rotary_cos and rotary_sin are null");
      q = read_tensor(operation, "q", o.q, 4, 4, context);
      q_out = read_tensor(operation, "q_out", o.q_out, 4, 4, context);
    }
  }

  /// What can be said of lengths and capacity before anything is written.
  template <class Exec>
  void validate(Exec const& exec, Span<std::int32_t const, 1> const& used) const {
    std::int64_t const capacity = k_cache.extent[2] * (has_pages ? pages.extent[1] : 1);
    std::int64_t const room = capacity - k_new.extent[2];
    if (room < 0)
      fail(ATTIKOS_SHAPE_MISMATCH, operation, ": k_new is ", k_new.describe(),
           "; expected at most ", capacity, " positions, the room for one sequence in k_cache");
    if (has_lengths) validate_lengths(exec, used, room);
  }

  template <class T>
  void run() const {
    auto const used = optional_span<std::int32_t const, 1>(has_lengths, lengths, {0});
    AppendKvOptions const options{
        .style = given.interleaved != 0 ? RopeStyle::interleaved : RopeStyle::half_split,
        .queries_share_position = given.queries_share_position != 0,
        .rotary_dim = given.rotary_dim};
    auto const call = [&](auto const&... extras) {
      run_on(context, [&](auto const& exec) {
        if (given.check != 0) validate(exec, used);
        append_kv(exec, k_new.span<T const, 4>(), v_new.span<T const, 4>(), k_cache.span<T, 4>(),
                  v_cache.span<T, 4>(), options, extras...);
      });
    };
    auto const with_pages = [&](auto const&... extras) {
      if (has_pages) {
        call(extras..., paged(pages.span<std::int32_t const, 2>(), k_cache.extent[2]));
      } else {
        call(extras...);
      }
    };
    auto const with_lengths = [&](auto const&... extras) {
      if (has_lengths) {
        with_pages(extras..., cache_lengths(used));
      } else {
        with_pages(extras...);
      }
    };
    if (!has_tables) {
      with_lengths();
      return;
    }
    visit_table<T>(operation, cos, [&]<class Table>(std::type_identity<Table>) {
      // No queries are queries of no rows: one case less to compile.
      std::array<std::int64_t, 4> const none{k_new.extent[0], 0, 0, k_new.extent[3]};
      with_lengths(rotary(cos.span<Table const, 2>(), sin.span<Table const, 2>()),
                   queries(optional_span<T const, 4>(has_queries, q, none),
                           optional_span<T, 4>(has_queries, q_out, none)));
    });
  }
};

/// Calls f with the type of partial outputs beside a result of type T: T itself or, beside 16-bit
/// elements, float.
template <class T, class F>
void visit_state(char const* operation, Tensor const& state, F const& f) {
  if constexpr (sizeof(T) == 2) {
    visit_dtype<T, float>(operation, state, f);
  } else {
    visit_dtype<T>(operation, state, f);
  }
}

/// States along dimension 0, the others raised to `Rank` behind it.
template <class T, int Rank>
Span<T, Rank> split_span(Tensor const& states) {
  auto const given = states.span<T, Rank>();
  if (states.rank == Rank) return given;
  std::array<std::int64_t, Rank> extents{}, strides{};
  for (std::size_t r = 0; r < Rank; ++r) {
    std::size_t const from = r == 0 ? 1 : r == 1 ? 0 : r;  // the raised dimension comes second
    extents[r] = given.extent(from);
    strides[r] = given.stride(from);
  }
  return Span<T, Rank>(given.data_handle(), extents, strides);
}

/// The result of merging.
struct MergeCall {
  static constexpr char const* operation = "merge_states";

  attikos_context const& context;
  Tensor out, lse;
  bool has_lse;

  MergeCall(attikos_context* given, attikos_tensor const* given_out,
            attikos_tensor const* given_lse)
      : context(expect_context(operation, given)),
        out(read_tensor(operation, "out", given_out, 3, 4, context)),
        has_lse(given_lse != nullptr) {
    if (has_lse)
      lse = read_tensor(operation, "lse", given_lse, out.rank - 1, out.rank - 1, context);
  }

  /// A partial output or its lse, of `rank` dimensions.
  Tensor part(char const* name, attikos_tensor const* given, int rank) const {
    return read_tensor(operation, name, given, rank, rank, context);
  }

  /// Calls f(exec, type of the states, type of out, out, lse); an lse is float, double beside
  /// double.
  template <class F>
  void run(Tensor const& state, std::initializer_list<Tensor const*> state_lses, F const& f) const {
    visit_floating(operation, out, [&]<class T>(std::type_identity<T> type) {
      using Acc = typename ElementTraits<T>::Accumulator;
      if (has_lse) visit_dtype<Acc>(operation, lse, [](auto) {});
      for (Tensor const* tensor : state_lses) visit_dtype<Acc>(operation, *tensor, [](auto) {});
      visit_state<T>(operation, state, [&](auto state_type) {
        auto const to = out.span<T, 4>();
        auto const rows =
            optional_span<Acc, 3>(has_lse, lse, {to.extent(0), to.extent(1), to.extent(2)});
        run_on(context, [&](auto const& exec) { f(exec, state_type, type, to, rows); });
      });
    });
  }
};

}  // namespace
}  // namespace attikos::c

extern "C" {

using namespace attikos::c;

attikos_status attikos_append_kv(attikos_context* context, attikos_tensor const* k_new,
                                 attikos_tensor const* v_new, attikos_tensor const* k_cache,
                                 attikos_tensor const* v_cache,
                                 attikos_append_kv_options const* options) {
  return guarded([&] {
    constexpr char const* operation = AppendCall::operation;
    auto const& where = expect_context(operation, context);
    attikos_append_kv_options const defaults = ATTIKOS_APPEND_KV_OPTIONS_INIT;
    auto const o = read_options(operation, options, defaults, sizeof defaults);
    AppendCall call(where, o);
    call.k_new = read_tensor(operation, "k_new", k_new, 4, 4, where);
    call.v_new = read_tensor(operation, "v_new", v_new, 4, 4, where);
    call.k_cache = read_tensor(operation, "k_cache", k_cache, 4, 4, where);
    call.v_cache = read_tensor(operation, "v_cache", v_cache, 4, 4, where);
    for (Tensor const* tensor : {&call.v_new, &call.k_cache, &call.v_cache})
      expect_same_dtype(operation, *tensor, call.k_new);
    if (call.has_queries) {
      expect_same_dtype(operation, call.q, call.k_new);
      expect_same_dtype(operation, call.q_out, call.k_new);
    }
    visit_floating(operation, call.k_new, [&]<class T>(std::type_identity<T>) { call.run<T>(); });
  });
}

attikos_status attikos_merge_states(attikos_context* context, attikos_tensor const* out_a,
                                    attikos_tensor const* lse_a, attikos_tensor const* out_b,
                                    attikos_tensor const* lse_b, attikos_tensor const* out,
                                    attikos_tensor const* lse) {
  return guarded([&] {
    MergeCall const call(context, out, lse);
    int const rank = call.out.rank;
    Tensor const a = call.part("out_a", out_a, rank);
    Tensor const of_a = call.part("lse_a", lse_a, rank - 1);
    Tensor const b = call.part("out_b", out_b, rank);
    Tensor const of_b = call.part("lse_b", lse_b, rank - 1);
    expect_same_dtype(MergeCall::operation, b, a);
    call.run(a, {&of_a, &of_b},
             [&]<class P, class T>(auto const& exec, std::type_identity<P>, std::type_identity<T>,
                                   auto const& to, auto const& rows) {
               using Acc = typename attikos::ElementTraits<T>::Accumulator;
               attikos::merge_states(exec, a.span<P const, 4>(), of_a.span<Acc const, 3>(),
                                     b.span<P const, 4>(), of_b.span<Acc const, 3>(), to, rows);
             });
  });
}

attikos_status attikos_merge_split_states(attikos_context* context, attikos_tensor const* outs,
                                          attikos_tensor const* lses, attikos_tensor const* out,
                                          attikos_tensor const* lse) {
  return guarded([&] {
    MergeCall const call(context, out, lse);
    int const rank = call.out.rank;
    Tensor const a = call.part("outs", outs, rank + 1);
    Tensor const of_a = call.part("lses", lses, rank);
    call.run(a, {&of_a},
             [&]<class P, class T>(auto const& exec, std::type_identity<P>, std::type_identity<T>,
                                   auto const& to, auto const& rows) {
               using Acc = typename attikos::ElementTraits<T>::Accumulator;
               attikos::merge_states(exec, split_span<P const, 5>(a),
                                     split_span<Acc const, 4>(of_a), to, rows);
             });
  });
}
}
