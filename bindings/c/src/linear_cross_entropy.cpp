// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <attikos/reduce/linear_cross_entropy.hpp>

#include "tensor.hpp"

extern "C" {

using namespace attikos::c;

attikos_status attikos_linear_cross_entropy(attikos_context* context, attikos_tensor const* hidden,
                                            attikos_tensor const* weight,
                                            attikos_tensor const* labels,
                                            attikos_tensor const* dloss, attikos_tensor const* loss,
                                            attikos_tensor const* dhidden,
                                            attikos_tensor const* dweight, double label_smoothing,
                                            int64_t ignore_index, int64_t rows_at_once) {
  return guarded([&] {
    constexpr char const* operation = "linear_cross_entropy";
    auto const& where = expect_context(operation, context);
    auto const read = [&](char const* name, attikos_tensor const* given, int rank) {
      return read_tensor(operation, name, given, rank, rank, where);
    };
    bool const has_dhidden = dhidden != nullptr, has_dweight = dweight != nullptr;
    // Checked where it is given, though only gradients read it.
    bool const has_dloss = dloss != nullptr || has_dhidden || has_dweight;
    Tensor const in = read("hidden", hidden, 2), by = read("weight", weight, 2),
                 of_labels = read("labels", labels, 1), to = read("loss", loss, 1);
    Tensor const given = has_dloss ? read("dloss", dloss, 1) : Tensor{};
    Tensor const of_in = has_dhidden ? read("dhidden", dhidden, 2) : Tensor{},
                 of_by = has_dweight ? read("dweight", dweight, 2) : Tensor{};
    expect_same_dtype(operation, by, in);
    if (has_dhidden) expect_same_dtype(operation, of_in, in);
    visit_floating(operation, in, [&]<class T>(std::type_identity<T>) {
      using Acc = attikos::detail::RowAccumulator<T, T>;
      visit_dtype<Acc>(operation, to, [](auto) {});
      if (has_dloss) visit_dtype<Acc>(operation, given, [](auto) {});
      visit_dtype<std::int32_t, std::int64_t>(
          operation, of_labels, [&]<class Label>(std::type_identity<Label>) {
            run_on(where, [&](auto const& exec) {
              attikos::LinearCrossEntropyOptions const options{label_smoothing, ignore_index,
                                                               rows_at_once};
              auto const run = [&](auto const& g, auto const& dh, auto const& dw) {
                attikos::linear_cross_entropy(exec, in.span<T const, 2>(), by.span<T const, 2>(),
                                              of_labels.span<Label const, 1>(), g,
                                              to.span<Acc, 1>(), dh, dw, options);
              };
              auto const with_dweight = [&](auto const& g, auto const& dh) {
                if (!has_dweight) return run(g, dh, attikos::none);
                auto const add = [&]<class Sum>(std::type_identity<Sum>) {
                  run(g, dh, of_by.span<Sum, 2>());
                };
                visit_beside<T>(operation, of_by, add);
              };
              if (!has_dloss)
                run(attikos::none, attikos::none, attikos::none);
              else if (has_dhidden)
                with_dweight(given.span<Acc const, 1>(), of_in.span<T, 2>());
              else
                with_dweight(given.span<Acc const, 1>(), attikos::none);
            });
          });
    });
  });
}
}
