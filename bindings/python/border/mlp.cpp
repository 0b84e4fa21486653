// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The expansion of a gated MLP and its gradients.
#include <tvm/ffi/function.h>

#include "call.hpp"

namespace attikos::python {
namespace {

/// Tokens and both weights, of shapes from which that of the result follows.
struct Operands {
  Array x, gate, up;

  Operands(AnyView given_x, AnyView given_gate, AnyView given_up)
      : x(given_x), gate(given_gate), up(given_up) {
    expect(x.is_floating() && (x.rank() == 2 || x.rank() == 3));
    expect(gate.given() && gate.rank() == 2 && up.given());
    expect_together(x, gate, up);
  }
};

/// A new array of out's extents, or the caller's.
Result result_of(Operands const& given, AnyView out) {
  int const rank = given.x.rank();
  std::int64_t shape[Array::max_rank] = {};
  for (int r = 0; r + 1 < rank; ++r) shape[r] = given.x.extent(r);
  shape[rank - 1] = given.gate.extent(0);
  return Result(out, given.x.device(), given.x.type(), shape, rank);
}

Any gated_mlp(AnyView x, AnyView gate_weight, AnyView up_weight, AnyView out, AnyView activation) {
  return unless_declined([&] {
    Operands const given(x, gate_weight, up_weight);
    Result result = result_of(given, out);
    expect_together(given.x, result.seen());
    expect_success(attikos_gated_mlp(context_of(given.x.device()), given.x.get(), given.gate.get(),
                                     given.up.get(), result.get(),
                                     static_cast<std::int32_t>(integer(activation))));
    return result.finish();
  });
}

/// out, and both projections by more()
Any gated_mlp_keep(AnyView x, AnyView gate_weight, AnyView up_weight, AnyView activation) {
  return unless_declined([&] {
    Operands const given(x, gate_weight, up_weight);
    Result const out = result_of(given, Any());
    Result const gate = result_of(given, Any());
    Result const up = result_of(given, Any());
    expect_success(attikos_gated_mlp_keep(
        context_of(given.x.device()), given.x.get(), given.gate.get(), given.up.get(), out.get(),
        gate.get(), up.get(), static_cast<std::int32_t>(integer(activation))));
    return out.finish({&gate, &up});
  });
}

/// dx, and those of both weights by more(); run(context, gradients, activation) is the call.
template <class Run>
Any gradients_of(Operands const& given, AnyView activation, Run const& run) {
  auto const like = [](Array const& y) {
    return Result(Any(), y.device(), y.type(), y.shape(), y.rank());
  };
  Result const dx = like(given.x);
  Result const dgate = like(given.gate);
  Result const dup = like(given.up);
  expect_success(run(context_of(given.x.device()), dx.get(), dgate.get(), dup.get(),
                     static_cast<std::int32_t>(integer(activation))));
  return dx.finish({&dgate, &dup});
}

Any gated_mlp_backward(AnyView x, AnyView gate_weight, AnyView up_weight, AnyView dout,
                       AnyView activation) {
  return unless_declined([&] {
    Operands const given(x, gate_weight, up_weight);
    Array const gradient(dout);
    expect(gradient.given());
    expect_together(given.x, gradient);
    return gradients_of(given, activation, [&](attikos_context* context, auto... more) {
      return attikos_gated_mlp_backward(context, given.x.get(), given.gate.get(), given.up.get(),
                                        gradient.get(), more...);
    });
  });
}

Any gated_mlp_backward_kept(AnyView x, AnyView gate_weight, AnyView up_weight, AnyView dout,
                            AnyView kept_gate, AnyView kept_up, AnyView activation) {
  return unless_declined([&] {
    Operands const given(x, gate_weight, up_weight);
    Array const gradient(dout), gate(kept_gate), up(kept_up);
    expect(gradient.given() && gate.given() && up.given());
    expect_together(given.x, gradient, gate, up);
    return gradients_of(given, activation, [&](attikos_context* context, auto... more) {
      return attikos_gated_mlp_backward_kept(context, given.x.get(), given.gate.get(),
                                             given.up.get(), gradient.get(), gate.get(), up.get(),
                                             more...);
    });
  });
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(gated_mlp, gated_mlp);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(gated_mlp_keep, gated_mlp_keep);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(gated_mlp_backward, gated_mlp_backward);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(gated_mlp_backward_kept, gated_mlp_backward_kept);

}  // namespace attikos::python
