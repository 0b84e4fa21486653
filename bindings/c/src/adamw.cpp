// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <attikos/optimizer/adamw.hpp>

#include "tensor.hpp"

namespace attikos::c {
namespace {

/// One parameter as the library's checks see it, whatever the types.
struct AnyParameter {
  attikos::detail::AnyTensor parameter, gradient, exp_avg, exp_avg_sq, master;
};

AnyParameter read_parameter(char const* operation, attikos_context const& context,
                            attikos_tensor const* parameter, attikos_tensor const* gradient,
                            attikos_tensor const* exp_avg, attikos_tensor const* exp_avg_sq,
                            attikos_tensor const* master) {
  auto const read = [&](char const* name, attikos_tensor const* given) {
    return read_tensor(operation, name, given, 0, attikos::detail::AnyTensor::max_rank, context);
  };
  Tensor const w = read("parameter", parameter), g = read("gradient", gradient),
               m = read("exp_avg", exp_avg), v = read("exp_avg_sq", exp_avg_sq);
  AnyParameter result{w.any(), g.any(), m.any(), v.any(), {}};
  visit_floating(operation, w, [&]<class T>(std::type_identity<T>) {
    using State = attikos::detail::AdamWState<T>;
    visit_beside<T>(operation, g, [](auto) {});
    visit_dtype<State>(operation, m, [](auto) {});
    visit_dtype<State>(operation, v, [](auto) {});
    if (master == nullptr) return;
    Tensor const of_master = read("master", master);
    visit_dtype<State>(operation, of_master, [](auto) {});
    result.master = of_master.any();
  });
  return result;
}

/// The step of all parameters of these types.
template <class T, class G>
void run_types(char const* operation, attikos_context const& context,
               std::vector<AnyParameter> const& all, AdamWOptions const& options) {
  auto const is_one = [](AnyParameter const& p) {
    return p.parameter.type == dtype_of<T> && p.gradient.type == dtype_of<G>;
  };
  if (std::none_of(all.begin(), all.end(), is_one)) return;
  run_on(context, [&]<class Exec>(Exec const& exec) {
    std::vector<AdamWParameter<T, G, Exec>> ours;
    for (AnyParameter const& p : all)
      if (is_one(p)) ours.push_back({p.parameter, p.gradient, p.exp_avg, p.exp_avg_sq, p.master});
    attikos::detail::run_adamw(exec, operation, std::span(std::as_const(ours)), options);
  });
}

}  // namespace
}  // namespace attikos::c

extern "C" {

using namespace attikos::c;

attikos_status attikos_adamw_step(attikos_context* context, int32_t count,
                                  attikos_tensor const* const* parameters,
                                  attikos_tensor const* const* gradients,
                                  attikos_tensor const* const* exp_avgs,
                                  attikos_tensor const* const* exp_avg_sqs,
                                  attikos_tensor const* const* masters, double learning_rate,
                                  double beta1, double beta2, double epsilon, double weight_decay,
                                  double gradient_scale, int64_t step) {
  return guarded([&] {
    constexpr char const* operation = "adamw_step";
    auto const& where = expect_context(operation, context);
    attikos::AdamWOptions const options{learning_rate, beta1, beta2,         epsilon,
                                        weight_decay,  step,  gradient_scale};
    attikos::detail::check_adamw_options(operation, options);
    if (count < 0)
      fail(ATTIKOS_INVALID_ARGUMENT, operation, ": count is ", count, "; expected 0 or more");
    if (count == 0) return;
    struct List {
      char const* name;
      attikos_tensor const* const* tensors;
    };
    for (List const& list : {List{"parameters", parameters}, List{"gradients", gradients},
                             List{"exp_avgs", exp_avgs}, List{"exp_avg_sqs", exp_avg_sqs}})
      if (list.tensors == nullptr)
        fail(ATTIKOS_NULL_ARGUMENT, operation, ": ", list.name, " is null; expected ", count,
             " tensors");
    std::vector<AnyParameter> all;
    all.reserve(static_cast<std::size_t>(count));
    for (std::int32_t i = 0; i < count; ++i) {
      std::string const one = std::string(operation) + ": parameters[" + std::to_string(i) + "]";
      all.push_back(read_parameter(count == 1 ? operation : one.c_str(), where, parameters[i],
                                   gradients[i], exp_avgs[i], exp_avg_sqs[i],
                                   masters == nullptr ? nullptr : masters[i]));
    }
    attikos::detail::check_adamw_parameters(operation, std::span(std::as_const(all)));
    run_types<double, double>(operation, where, all, options);
    run_types<float, float>(operation, where, all, options);
    run_types<attikos::float16, attikos::float16>(operation, where, all, options);
    run_types<attikos::float16, float>(operation, where, all, options);
    run_types<attikos::bfloat16, attikos::bfloat16>(operation, where, all, options);
    run_types<attikos::bfloat16, float>(operation, where, all, options);
  });
}
}
