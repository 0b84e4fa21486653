// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention over parts of the keys, joined.
#include <attikos/decode/merge_states.hpp>

#include "tensor.hpp"

namespace attikos::c {
namespace {

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
      visit_beside<T>(operation, state, [&](auto state_type) {
        auto const to = out.span<T, 4>();
        // Null data are taken as absent.
        auto const rows =
            has_lse ? lse.span<Acc, 3>()
                    : Span<Acc, 3>(nullptr, {to.extent(0), to.extent(1), to.extent(2)}, {1, 1, 1});
        run_on(context, [&](auto const& exec) { f(exec, state_type, type, to, rows); });
      });
    });
  }
};

}  // namespace
}  // namespace attikos::c

extern "C" {

using namespace attikos::c;

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
