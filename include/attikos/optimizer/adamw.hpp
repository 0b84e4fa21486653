// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// adamw_step(): an optimizer's step in one pass over parameters, gradients and moments.
#pragma once

#include <attikos/optimizer/adamw_portable.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// A step of AdamW of several parameters: with g = gradient_scale·gradient and t the step,
///
///   m ← β₁·m + (1 − β₁)·g,   v ← β₂·v + (1 − β₂)·g²,
///   w ← (1 − lr·decay)·w − lr·(m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε),
///
/// w the master weights where they are given, of which the parameter becomes the rounding, and else
/// the parameter itself (Loshchilov and Hutter, Decoupled Weight Decay Regularization, ICLR 2019,
/// algorithm 2, as torch.optim.AdamW has it).
///
/// \param exec        execution space instance; the call is asynchronous on it and never fences
/// \param parameters  what adamw_parameter() made: of each parameter the tensors, of one shape,
///                    rank 1 to 5 and any strides. A launch takes 48 of those whose tensors lie
///                    dense and alike; each other parameter has its own
/// \param options     learning rate, betas, epsilon, weight decay, the step, a factor of gradients
///
/// Types: parameters double, float, float16 or bfloat16; gradients the same, or float beside 16
/// bits; exp_avg (m), exp_avg_sq (v) and master weights float, of double parameters double.
/// Computed in those, the parameter rounded to nearest. With master weights the parameter is not
/// read. A NaN or an infinity in a gradient makes NaN of its own element alone. Tensors that are
/// written share no memory with any other of the call. Determinism: the same bits on every run, for
/// any number of host threads, and wherever an element lies. Throws ShapeError, StrideError, Error,
/// UnsupportedError before launching.
template <ExecutionSpace Exec, class T, class G>
void adamw_step(Exec const& exec, std::span<AdamWParameter<T, G, Exec> const> parameters,
                AdamWOptions const& options = {}) {
  char const* const name = "adamw_step";
  detail::check_adamw_options(name, options);
  if (parameters.empty()) return;
  detail::check_adamw_parameters(name, parameters);
  detail::run_adamw(exec, name, parameters, options);
}

/// The same of one parameter.
///
/// \param extras  master(view): float32 weights of which the parameter is the rounding
template <ExecutionSpace Exec, TensorLike Parameter, TensorLike Gradient, TensorLike ExpAvg,
          TensorLike ExpAvgSq, detail::AdamWExtra... Extras>
void adamw_step(Exec const& exec, Parameter const& parameter, Gradient const& gradient,
                ExpAvg const& exp_avg, ExpAvgSq const& exp_avg_sq, AdamWOptions const& options = {},
                Extras const&... extras) {
  auto const p = adamw_parameter(exec, parameter, gradient, exp_avg, exp_avg_sq, extras...);
  adamw_step(exec, std::span(&p, 1), options);
}

/// The same on an instance of the default execution space.
template <class T, class G>
void adamw_step(std::span<AdamWParameter<T, G> const> parameters,
                AdamWOptions const& options = {}) {
  adamw_step(Kokkos::DefaultExecutionSpace{}, parameters, options);
}
template <TensorLike Parameter, TensorLike Gradient, TensorLike ExpAvg, TensorLike ExpAvgSq,
          detail::AdamWExtra... Extras>
void adamw_step(Parameter const& parameter, Gradient const& gradient, ExpAvg const& exp_avg,
                ExpAvgSq const& exp_avg_sq, AdamWOptions const& options = {},
                Extras const&... extras) {
  adamw_step(Kokkos::DefaultExecutionSpace{}, parameter, gradient, exp_avg, exp_avg_sq, options,
             extras...);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
