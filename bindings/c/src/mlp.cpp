// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <attikos/mlp/gated_mlp.hpp>
#include <attikos/mlp/gated_mlp_backward.hpp>

#include "explanation.hpp"
#include "tensor.hpp"

namespace attikos::c {
namespace {

GatedMlpOptions mlp_options(char const* operation, std::int32_t activation) {
  if (activation != ATTIKOS_ACTIVATION_SILU && activation != ATTIKOS_ACTIVATION_GELU &&
      activation != ATTIKOS_ACTIVATION_GELU_TANH)
    fail(ATTIKOS_INVALID_ARGUMENT, operation, ": activation is ", activation,
         "; expected silu, gelu or gelu_tanh");
  return {.activation = static_cast<Activation>(activation)};
}

/// A matrix of the call, of the number of dimensions and the type of x.
Tensor read_like(char const* operation, char const* name, attikos_tensor const* given, int rank,
                 Tensor const& x, attikos_context const& context) {
  Tensor const result = read_tensor(operation, name, given, rank, rank, context);
  expect_same_dtype(operation, result, x);
  return result;
}

/// Runs, or finds out what would run (log given).
void run_mlp(attikos_context* context, attikos_tensor const* x, attikos_tensor const* gate_weight,
             attikos_tensor const* up_weight, attikos_tensor const* out, std::int32_t activation,
             Explanation* log) {
  constexpr char const* operation = "gated_mlp";
  auto const& where = expect_context(operation, context);
  auto const options = mlp_options(operation, activation);
  Tensor const in = read_tensor(operation, "x", x, 2, 3, where);
  Tensor const gate = read_like(operation, "gate_weight", gate_weight, 2, in, where);
  Tensor const up = read_like(operation, "up_weight", up_weight, 2, in, where);
  Tensor const to = read_like(operation, "out", out, in.rank, in, where);
  visit_floating(operation, in, [&]<class T>(std::type_identity<T>) {
    run_on(where, [&](auto const& exec) {
      auto const call = [&](auto const& f) {
        f(in.span<T const, 3>(), gate.span<T const, 2>(), up.span<T const, 2>(), to.span<T, 3>());
      };
      if (log != nullptr) {
        call([&](auto const&... tensors) {
          *log = explain(op::gated_mlp, exec, tensors..., options);
        });
      } else {
        call([&](auto const&... tensors) { gated_mlp(exec, tensors..., options); });
      }
    });
  });
}

}  // namespace
}  // namespace attikos::c

extern "C" {

using namespace attikos::c;

attikos_status attikos_gated_mlp(attikos_context* context, attikos_tensor const* x,
                                 attikos_tensor const* gate_weight, attikos_tensor const* up_weight,
                                 attikos_tensor const* out, int32_t activation) {
  return guarded([&] { run_mlp(context, x, gate_weight, up_weight, out, activation, nullptr); });
}

attikos_status attikos_explain_gated_mlp(attikos_context* context, attikos_tensor const* x,
                                         attikos_tensor const* gate_weight,
                                         attikos_tensor const* up_weight, attikos_tensor const* out,
                                         int32_t activation, char* text, size_t size,
                                         size_t* length) {
  return guarded([&] {
    explain_into({text, size, length}, "explain_gated_mlp", [&](attikos::Explanation* log) {
      run_mlp(context, x, gate_weight, up_weight, out, activation, log);
    });
  });
}

attikos_status attikos_gated_mlp_backward(attikos_context* context, attikos_tensor const* x,
                                          attikos_tensor const* gate_weight,
                                          attikos_tensor const* up_weight,
                                          attikos_tensor const* dout, attikos_tensor const* dx,
                                          attikos_tensor const* dgate_weight,
                                          attikos_tensor const* dup_weight, int32_t activation) {
  return guarded([&] {
    constexpr char const* operation = "gated_mlp_backward";
    auto const& where = expect_context(operation, context);
    auto const options = mlp_options(operation, activation);
    Tensor const in = read_tensor(operation, "x", x, 2, 3, where);
    Tensor const gate = read_like(operation, "gate_weight", gate_weight, 2, in, where);
    Tensor const up = read_like(operation, "up_weight", up_weight, 2, in, where);
    Tensor const given = read_like(operation, "dout", dout, in.rank, in, where);
    Tensor const to = read_like(operation, "dx", dx, in.rank, in, where);
    Tensor const dgate = read_like(operation, "dgate_weight", dgate_weight, 2, in, where);
    Tensor const dup = read_like(operation, "dup_weight", dup_weight, 2, in, where);
    visit_floating(operation, in, [&]<class T>(std::type_identity<T>) {
      run_on(where, [&](auto const& exec) {
        attikos::gated_mlp_backward(exec, in.span<T const, 3>(), gate.span<T const, 2>(),
                                    up.span<T const, 2>(), given.span<T const, 3>(),
                                    to.span<T, 3>(), dgate.span<T, 2>(), dup.span<T, 2>(), options);
      });
    });
  });
}
}
