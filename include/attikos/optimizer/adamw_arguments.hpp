// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Options, parameters and checks of adamw_step().
#pragma once

#include <algorithm>
#include <attikos/core/dispatch/to_abi.hpp>
#include <attikos/core/overlap.hpp>
#include <cmath>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Options of adamw_step().
struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;          ///< of the first moment, in [0, 1)
  double beta2 = 0.999;        ///< of the second moment, in [0, 1)
  double epsilon = 1e-8;       ///< beside the root of the second moment
  double weight_decay = 1e-2;  ///< decoupled: times the learning rate
  std::int64_t step = 1;       ///< the number of this step, from 1 on, which corrects the bias
  /// factor of gradients: the inverse of a loss scale, what clips them, −1 to go uphill
  double gradient_scale = 1;
};

/// Float32 weights (float64 of float64 parameters) of which the parameters are roundings: these
/// are what a step changes.
template <TensorLike T>
struct Master {
  T view;
};
template <TensorLike T>
Master<T> master(T const& view) {
  return {view};
}

/// One parameter of a call of adamw_step() on several, as adamw_parameter() makes it: tensors of
/// one shape.
template <class T, class G = T, ExecutionSpace Exec = Kokkos::DefaultExecutionSpace>
struct AdamWParameter {
  detail::AnyTensor parameter, gradient, exp_avg, exp_avg_sq, master;
};

namespace detail {

template <class T>
concept AdamWExtra = is_any_wrapper<T, Master>;

/// What moments and master weights of parameters of type T are kept in, and steps computed in.
template <class T>
using AdamWState = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// What an element's step is computed from.
template <class Acc>
struct AdamWFactors {
  Acc scale, decay, step_size, root, epsilon;
  Acc rate1, rate2;  // moment ← base + rate·(g − moment), exact for a beta of 0 as for one near 1
  bool is_from_new1, is_from_new2;  // base: the gradient, else the moment

  explicit AdamWFactors(AdamWOptions const& o)
      : scale(static_cast<Acc>(o.gradient_scale)),
        decay(static_cast<Acc>(1 - o.learning_rate * o.weight_decay)),
        step_size(static_cast<Acc>(o.learning_rate / correction(o.beta1, o.step))),
        root(static_cast<Acc>(1 / std::sqrt(correction(o.beta2, o.step)))),
        epsilon(static_cast<Acc>(o.epsilon)),
        rate1(static_cast<Acc>(o.beta1 > 0.5 ? 1 - o.beta1 : -o.beta1)),
        rate2(static_cast<Acc>(o.beta2 > 0.5 ? 1 - o.beta2 : -o.beta2)),
        is_from_new1(!(o.beta1 > 0.5)),
        is_from_new2(!(o.beta2 > 0.5)) {}

  /// 1 − beta^step
  static double correction(double beta, std::int64_t step) {
    return -std::expm1(static_cast<double>(step) * std::log(beta));
  }
};

inline void check_adamw_options(char const* operation, AdamWOptions const& o) {
  auto const check = [&](char const* name, double value, bool fits, char const* expected) {
    if (!fits) raise<Error>(operation, ": ", name, " is ", value, "; expected a number ", expected);
  };
  auto const check_positive = [&](char const* name, double value) {
    check(name, value, std::isfinite(value) && value >= 0, "of 0 or more");
  };
  check_positive("learning_rate", o.learning_rate);
  check("beta1", o.beta1, o.beta1 >= 0 && o.beta1 < 1, "in [0, 1)");
  check("beta2", o.beta2, o.beta2 >= 0 && o.beta2 < 1, "in [0, 1)");
  check_positive("epsilon", o.epsilon);
  check_positive("weight_decay", o.weight_decay);
  check("gradient_scale", o.gradient_scale, std::isfinite(o.gradient_scale), "that is finite");
  if (o.step < 1)
    raise<Error>(operation, ": step is ", o.step, "; expected the number of a step, from 1 on");
}

/// A tensor of a parameter by number: 0 is the parameter itself, 4 the master weights.
inline constexpr char const* adamw_names[] = {"parameter", "gradient", "exp_avg", "exp_avg_sq",
                                              "master"};
template <class Parameter>
AnyTensor const& adamw_tensor(Parameter const& p, int i) {
  AnyTensor const* const tensors[] = {&p.parameter, &p.gradient, &p.exp_avg, &p.exp_avg_sq,
                                      &p.master};
  return *tensors[i];
}

/// Shapes of one parameter, and memory that its tensors share.
template <class Parameter>
void check_adamw_parameter(char const* operation, Parameter const& p) {
  for (int i = 0; i < 5; ++i) {
    AnyTensor const& x = adamw_tensor(p, i);
    if (i == 4 && !x.given()) break;
    check_extents(operation, adamw_names[i], x);
    if (x.rank != p.parameter.rank || !std::equal(x.extent, x.extent + x.rank, p.parameter.extent))
      raise<ShapeError>(operation, ": ", adamw_names[i], " is ", describe(x),
                        "; expected the extents of parameter, which is ", describe(p.parameter));
  }
  check_outputs(operation,
                {{"parameter", p.parameter},
                 {"exp_avg", p.exp_avg},
                 {"exp_avg_sq", p.exp_avg_sq},
                 {"master", p.master}},
                {{"gradient", p.gradient}});
}

/// The same of all parameters of a call, and memory that tensors of two of them share.
template <class Parameter>
void check_adamw_parameters(char const* operation, std::span<Parameter const> parameters) {
  if (parameters.size() == 1) return check_adamw_parameter(operation, parameters[0]);
  struct Memory {
    MemoryRange range;
    std::size_t parameter;
    int tensor;
  };
  std::vector<Memory> all;
  all.reserve(5 * parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    try {
      check_adamw_parameter(operation, parameters[i]);
    } catch (Error const&) {  // say which
      std::string const name = std::string(operation) + ": parameters[" + std::to_string(i) + "]";
      check_adamw_parameter(name.c_str(), parameters[i]);
    }
    for (int t = 0; t < 5; ++t) {
      Memory const memory{MemoryRange(adamw_tensor(parameters[i], t)), i, t};
      if (!memory.range.is_empty()) all.push_back(memory);
    }
  }
  std::sort(all.begin(), all.end(),
            [](Memory const& a, Memory const& b) { return a.range.begin < b.range.begin; });
  auto const name_of = [](Memory const& m) {
    return std::string(adamw_names[m.tensor]) + " of parameters[" + std::to_string(m.parameter) +
           "]";
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = i + 1; j < all.size() && all[j].range.begin < all[i].range.end; ++j) {
      Memory const &a = all[i], &b = all[j];
      if (a.parameter == b.parameter || (a.tensor == 1 && b.tensor == 1)) continue;
      if (!overlaps(adamw_tensor(parameters[a.parameter], a.tensor),
                    adamw_tensor(parameters[b.parameter], b.tensor)))
        continue;
      Memory const& output = a.tensor == 1 ? b : a;
      Memory const& other = a.tensor == 1 ? a : b;
      raise<Error>(operation, ": output ", name_of(output), " shares memory with ", name_of(other),
                   "; expected memory of its own");
    }
  }
}

}  // namespace detail

/// A parameter for a call of adamw_step() on several: tensors of one shape, rank 1 to 5, as for
/// one.
template <ExecutionSpace Exec, TensorLike Parameter, TensorLike Gradient, TensorLike ExpAvg,
          TensorLike ExpAvgSq, detail::AdamWExtra... Extras>
auto adamw_parameter(Exec const&, Parameter const& parameter, Gradient const& gradient,
                     ExpAvg const& exp_avg, ExpAvgSq const& exp_avg_sq, Extras const&... extras) {
  using T = element_t<Parameter>;
  using G = element_t<Gradient>;
  using State = detail::AdamWState<T>;
  detail::check_output<Exec>(parameter);
  detail::check_tensor<Exec, Gradient>();
  detail::check_output<Exec>(exp_avg);
  detail::check_output<Exec>(exp_avg_sq);
  static_assert(std::is_same_v<T, double> || std::is_same_v<T, float> ||
                    std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>,
                "attikos: parameters are double, float, float16 or bfloat16");
  static_assert(std::is_same_v<G, T> || (std::is_same_v<G, float> && sizeof(T) == 2),
                "attikos: gradients have the type of their parameter, or are float beside 16 bits");
  static_assert(
      std::is_same_v<element_t<ExpAvg>, State> && std::is_same_v<element_t<ExpAvgSq>, State>,
      "attikos: moments are float, of double parameters double");
  AdamWParameter<T, G, Exec> result{detail::any_tensor(parameter),
                                    detail::any_tensor(gradient),
                                    detail::any_tensor(exp_avg),
                                    detail::any_tensor(exp_avg_sq),
                                    {}};
  auto const weights = detail::find_extra<Master>(extras...);
  if constexpr (detail::is_present<decltype(weights)>) {
    detail::check_output<Exec>(weights.view);
    static_assert(std::is_same_v<element_t<decltype(weights.view)>, State>,
                  "attikos: master weights are float, of double parameters double");
    result.master = detail::any_tensor(weights.view);
  }
  return result;
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
