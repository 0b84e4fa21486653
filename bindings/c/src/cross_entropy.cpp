// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <attikos/reduce/cross_entropy.hpp>
#include <attikos/reduce/cross_entropy_backward.hpp>

#include "row_call.hpp"

namespace attikos::c {
namespace {

/// Logits and their labels, and the numbers of rows beside them.
struct LabeledCall {
  char const* operation;
  attikos_context const& context;
  Tensor logits, labels;

  LabeledCall(char const* name, attikos_context* given, attikos_tensor const* given_logits,
              attikos_tensor const* given_labels)
      : operation(name),
        context(expect_context(name, given)),
        logits(read_tensor(name, "logits", given_logits, 2, 3, context)),
        labels(row_values("labels", given_labels)) {}

  /// One number of each row, of any type.
  Tensor row_values(char const* name, attikos_tensor const* given) const {
    return read_tensor(operation, name, given, logits.rank - 1, logits.rank - 1, context);
  }
  /// The same of the type that is computed in.
  Tensor wide_values(char const* name, attikos_tensor const* given) const {
    Tensor const values = row_values(name, given);
    if (logits.dtype == ATTIKOS_FLOAT64)
      visit_dtype<double>(operation, values, [](auto) {});
    else
      visit_dtype<float>(operation, values, [](auto) {});
    return values;
  }

  /// Calls f(T, Acc, Label, exec), each a std::type_identity.
  template <class F>
  void run(F const& f) const {
    visit_floating(operation, logits, [&]<class T>(std::type_identity<T> type) {
      using Acc = attikos::detail::RowAccumulator<T, T>;
      visit_dtype<std::int32_t, std::int64_t>(operation, labels, [&](auto label) {
        run_on(context, [&](auto const& exec) { f(type, std::type_identity<Acc>{}, label, exec); });
      });
    });
  }
};

}  // namespace
}  // namespace attikos::c

extern "C" {

using namespace attikos::c;

attikos_status attikos_cross_entropy(attikos_context* context, attikos_tensor const* logits,
                                     attikos_tensor const* labels, attikos_tensor const* loss,
                                     attikos_tensor const* lse, double label_smoothing,
                                     int64_t ignore_index) {
  return guarded([&] {
    LabeledCall const call("cross_entropy", context, logits, labels);
    Tensor const to = call.wide_values("loss", loss);
    Tensor const sums = lse == nullptr ? Tensor{} : call.wide_values("lse", lse);
    call.run([&]<class T, class Acc, class Label>(std::type_identity<T>, std::type_identity<Acc>,
                                                  std::type_identity<Label>, auto const& exec) {
      attikos::CrossEntropyOptions const options{label_smoothing, ignore_index};
      auto const run = [&](auto const& of_lse) {
        attikos::cross_entropy(exec, call.logits.span<T const, 3>(),
                               call.labels.span<Label const, 2>(), to.span<Acc, 2>(), of_lse,
                               options);
      };
      if (lse == nullptr)
        run(attikos::none);
      else
        run(sums.span<Acc, 2>());
    });
  });
}

attikos_status attikos_cross_entropy_backward(
    attikos_context* context, attikos_tensor const* logits, attikos_tensor const* labels,
    attikos_tensor const* lse, attikos_tensor const* dloss, attikos_tensor const* dlogits,
    double label_smoothing, int64_t ignore_index) {
  return guarded([&] {
    constexpr char const* operation = "cross_entropy_backward";
    LabeledCall const call(operation, context, logits, labels);
    Tensor const sums = call.wide_values("lse", lse);
    Tensor const given = call.wide_values("dloss", dloss);
    Tensor const to = read_tensor(operation, "dlogits", dlogits, call.logits.rank, call.logits.rank,
                                  call.context);
    expect_same_dtype(operation, to, call.logits);
    call.run([&]<class T, class Acc, class Label>(std::type_identity<T>, std::type_identity<Acc>,
                                                  std::type_identity<Label>, auto const& exec) {
      attikos::cross_entropy_backward(exec, call.logits.span<T const, 3>(),
                                      call.labels.span<Label const, 2>(), sums.span<Acc const, 2>(),
                                      given.span<Acc const, 2>(), to.span<T, 3>(),
                                      {label_smoothing, ignore_index});
    });
  });
}
}
