// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <attikos/embedding/embedding.hpp>
#include <attikos/embedding/embedding_backward.hpp>

#include "row_call.hpp"

namespace attikos::c {
namespace {

/// Ids, a table, and the rows that they name: of rank 2 and 3 by dimensions of extent 1.
struct EmbeddingCall {
  char const* operation;
  attikos_context const& context;
  Tensor ids, table, rows;

  EmbeddingCall(char const* name, attikos_context* given, attikos_tensor const* given_ids,
                char const* table_name, attikos_tensor const* given_table, char const* rows_name,
                attikos_tensor const* given_rows)
      : operation(name),
        context(expect_context(name, given)),
        ids(read_tensor(name, "ids", given_ids, 1, 2, context)),
        table(read_tensor(name, table_name, given_table, 2, 2, context)),
        rows(read_tensor(name, rows_name, given_rows, ids.rank + 1, ids.rank + 1, context)) {}

  /// Calls f(T, Id, exec) with the type of `elements` and of the ids, each a std::type_identity.
  template <class F>
  void run(Tensor const& elements, F const& f) const {
    visit_floating(operation, elements, [&](auto type) {
      visit_dtype<std::int32_t, std::int64_t>(operation, ids, [&](auto id) {
        run_on(context, [&](auto const& exec) { f(type, id, exec); });
      });
    });
  }
};

}  // namespace
}  // namespace attikos::c

extern "C" {

using namespace attikos::c;

attikos_status attikos_embedding(attikos_context* context, attikos_tensor const* table,
                                 attikos_tensor const* ids, attikos_tensor const* out) {
  return guarded([&] {
    constexpr char const* operation = "embedding";
    EmbeddingCall const call(operation, context, ids, "table", table, "out", out);
    expect_same_dtype(operation, call.rows, call.table);
    call.run(call.table, [&]<class T, class Id>(std::type_identity<T>, std::type_identity<Id>,
                                                auto const& exec) {
      attikos::embedding(exec, call.table.span<T const, 2>(), call.ids.span<Id const, 2>(),
                         call.rows.span<T, 3>());
    });
  });
}

attikos_status attikos_embedding_backward(attikos_context* context, attikos_tensor const* ids,
                                          attikos_tensor const* dout, attikos_tensor const* dtable,
                                          int64_t padding_index, double beta) {
  return guarded([&] {
    constexpr char const* operation = "embedding_backward";
    EmbeddingCall const call(operation, context, ids, "dtable", dtable, "dout", dout);
    expect_finite(operation, "beta", beta);
    call.run(call.rows, [&]<class T, class Id>(std::type_identity<T>, std::type_identity<Id>,
                                               auto const& exec) {
      visit_beside<T>(operation, call.table, [&]<class Sum>(std::type_identity<Sum>) {
        attikos::embedding_backward(exec, call.ids.span<Id const, 2>(),
                                    call.rows.span<T const, 3>(), call.table.span<Sum, 2>(),
                                    {.padding_index = padding_index, .beta = beta});
      });
    });
  });
}
}
