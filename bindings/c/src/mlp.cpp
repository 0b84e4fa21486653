// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <attikos/mlp/gated_mlp.hpp>
#include <attikos/mlp/gated_mlp_backward.hpp>
#include <tuple>
#include <type_traits>

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

/// x, both weights, and out or its gradient.
struct Operands {
  Tensor x, gate_weight, up_weight, out;

  Operands(char const* operation, attikos_tensor const* given_x, attikos_tensor const* gate,
           attikos_tensor const* up, char const* out_name, attikos_tensor const* given_out,
           attikos_context const& context)
      : x(read_tensor(operation, "x", given_x, 2, 3, context)),
        gate_weight(read_like(operation, "gate_weight", gate, 2, x, context)),
        up_weight(read_like(operation, "up_weight", up, 2, x, context)),
        out(read_like(operation, out_name, given_out, x.rank, x, context)) {}

  /// f(type, exec, tensors...) with what has the type `Out` where it is out.
  template <template <class> class Out, class F>
  void visit(char const* operation, attikos_context const& context, F const& f) const {
    visit_floating(operation, x, [&]<class T>(std::type_identity<T> type) {
      run_on(context, [&](auto const& exec) {
        f(type, exec, x.span<T const, 3>(), gate_weight.span<T const, 2>(),
          up_weight.span<T const, 2>(), out.span<Out<T>, 3>());
      });
    });
  }
};

/// Both projections, as out is.
struct Kept {
  Tensor gate, up;

  Kept(char const* operation, attikos_tensor const* given_gate, attikos_tensor const* given_up,
       Tensor const& x, attikos_context const& context)
      : gate(read_like(operation, "gate", given_gate, x.rank, x, context)),
        up(read_like(operation, "up", given_up, x.rank, x, context)) {}

  template <class T>
  auto as() const {
    return projections(gate.span<T, 3>(), up.span<T, 3>());
  }
};

/// Runs, or finds out what would run (log given).
void run_mlp(attikos_context* context, attikos_tensor const* x, attikos_tensor const* gate_weight,
             attikos_tensor const* up_weight, attikos_tensor const* out, std::int32_t activation,
             Explanation* log) {
  constexpr char const* operation = "gated_mlp";
  auto const& where = expect_context(operation, context);
  auto const options = mlp_options(operation, activation);
  Operands const given(operation, x, gate_weight, up_weight, "out", out, where);
  given.visit<std::type_identity_t>(operation, where,
                                    [&](auto, auto const& exec, auto const&... tensors) {
                                      if (log != nullptr) {
                                        *log = explain(op::gated_mlp, exec, tensors..., options);
                                      } else {
                                        gated_mlp(exec, tensors..., options);
                                      }
                                    });
}

/// The tensors that a backward call writes.
struct Gradients {
  attikos_tensor const *dx, *dgate_weight, *dup_weight;
};

/// extras(type) is what a call on elements of that type has besides.
template <class Extras>
void run_backward(attikos_context const& context, Operands const& given, Gradients const& gradients,
                  GatedMlpOptions const& options, Extras const& extras) {
  constexpr char const* operation = "gated_mlp_backward";
  auto const read = [&](char const* name, attikos_tensor const* tensor, int rank) {
    return read_like(operation, name, tensor, rank, given.x, context);
  };
  Tensor const dx = read("dx", gradients.dx, given.x.rank);
  Tensor const dgate = read("dgate_weight", gradients.dgate_weight, 2);
  Tensor const dup = read("dup_weight", gradients.dup_weight, 2);
  given.visit<std::add_const_t>(
      operation, context,
      [&]<class T>(std::type_identity<T> type, auto const& exec, auto const&... tensors) {
        std::apply(
            [&](auto const&... more) {
              gated_mlp_backward(exec, tensors..., dx.span<T, 3>(), dgate.span<T, 2>(),
                                 dup.span<T, 2>(), options, more...);
            },
            extras(type));
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

attikos_status attikos_gated_mlp_keep(attikos_context* context, attikos_tensor const* x,
                                      attikos_tensor const* gate_weight,
                                      attikos_tensor const* up_weight, attikos_tensor const* out,
                                      attikos_tensor const* gate, attikos_tensor const* up,
                                      int32_t activation) {
  return guarded([&] {
    constexpr char const* operation = "gated_mlp";
    auto const& where = expect_context(operation, context);
    auto const options = mlp_options(operation, activation);
    Operands const given(operation, x, gate_weight, up_weight, "out", out, where);
    Kept const kept(operation, gate, up, given.x, where);
    given.visit<std::type_identity_t>(
        operation, where,
        [&]<class T>(std::type_identity<T>, auto const& exec, auto const&... tensors) {
          gated_mlp(exec, tensors..., options, kept.as<T>());
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
    Operands const given(operation, x, gate_weight, up_weight, "dout", dout, where);
    run_backward(where, given, {dx, dgate_weight, dup_weight}, options,
                 [](auto) { return std::tuple(); });
  });
}

attikos_status attikos_gated_mlp_backward_kept(
    attikos_context* context, attikos_tensor const* x, attikos_tensor const* gate_weight,
    attikos_tensor const* up_weight, attikos_tensor const* dout, attikos_tensor const* gate,
    attikos_tensor const* up, attikos_tensor const* dx, attikos_tensor const* dgate_weight,
    attikos_tensor const* dup_weight, int32_t activation) {
  return guarded([&] {
    constexpr char const* operation = "gated_mlp_backward";
    auto const& where = expect_context(operation, context);
    auto const options = mlp_options(operation, activation);
    Operands const given(operation, x, gate_weight, up_weight, "dout", dout, where);
    Kept const kept(operation, gate, up, given.x, where);
    run_backward(where, given, {dx, dgate_weight, dup_weight}, options,
                 [&]<class T>(std::type_identity<T>) { return std::tuple(kept.as<T const>()); });
  });
}
}
