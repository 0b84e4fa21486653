// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products of one floating type, or of int8 into int32; sizes, shapes and the result as in
// matmul.py. `wide`: of 16 bits into float32.
#include <tvm/ffi/function.h>

#include <optional>

#include "call.hpp"

namespace attikos::python {
namespace {

Any gemm(AnyView a, AnyView b, AnyView out, AnyView bias, AnyView residual, AnyView alpha,
         AnyView scale, AnyView trans_a, AnyView trans_b, AnyView activation, AnyView compute,
         AnyView packed, AnyView wide) {
  return unless_declined([&] {
    Array const x(a);
    Array const y(b);
    Array const along(bias);
    Array const added(residual);
    Array const held(packed);  // b then has its type and extents alone
    expect_together(x, y, along, added, held);
    bool const exact = x.given() && x.dtype() == ATTIKOS_INT8;  // has no epilogue
    expect((exact || x.is_floating()) && y.given() && y.dtype() == x.dtype());
    attikos_gemm_options options = ATTIKOS_GEMM_OPTIONS_INIT;
    options.alpha = real(alpha);
    options.scale = real(scale);
    options.trans_a = flag(trans_a);
    options.trans_b = flag(trans_b);
    options.activation = static_cast<std::int32_t>(integer(activation));
    expect(!exact || !(along.given() || added.given()));
    options.compute = static_cast<std::int32_t>(integer(compute));
    options.bias = along.get();
    options.residual = added.get();
    options.packed_b = held.get();

    auto const is_matrix = [](Array const& m) { return m.rank() == 2 || m.rank() == 3; };
    expect(is_matrix(x) && is_matrix(y));
    bool const ta = options.trans_a != 0;
    bool const tb = options.trans_b != 0;
    expect(x.extent(ta ? -2 : -1) == y.extent(tb ? -1 : -2));
    std::int64_t const batch_x = x.rank() == 3 ? x.extent(0) : 1;
    std::int64_t const batch_y = y.rank() == 3 ? y.extent(0) : 1;
    expect(batch_x == batch_y || batch_x == 1 || batch_y == 1);
    std::int64_t const shape[] = {batch_x != 1 ? batch_x : batch_y, x.extent(ta ? -1 : -2),
                                  y.extent(tb ? -2 : -1)};
    int const rank = x.rank() == 3 || y.rank() == 3 ? 3 : 2;
    bool const widened = flag(wide) != 0;
    expect(!widened || x.type().bits == 16);
    DLDataType const type = exact     ? DLDataType{kDLInt, 32, 1}
                            : widened ? DLDataType{kDLFloat, 32, 1}
                                      : x.type();
    Result result(out, x.device(), type, shape + 3 - rank, rank);
    expect_success(attikos_gemm(context_of(x.device()), x.get(), y.get(), result.get(), &options));
    return result.finish();
  });
}

/// Those of da and db that are wanted, of a product without an activation.
Any gemm_backward(AnyView a, AnyView b, AnyView dout, AnyView alpha, AnyView scale, AnyView trans_a,
                  AnyView trans_b, AnyView compute, AnyView wants_a, AnyView wants_b) {
  return unless_declined([&] {
    Array const x(a);
    Array const y(b);
    Array const given(dout);
    expect_together(x, y, given);
    expect(x.is_floating() && y.given() && given.given());
    expect(y.dtype() == x.dtype() && given.dtype() == x.dtype());
    attikos_gemm_options options = ATTIKOS_GEMM_OPTIONS_INIT;
    options.alpha = real(alpha);
    options.scale = real(scale);
    options.trans_a = flag(trans_a);
    options.trans_b = flag(trans_b);
    options.compute = static_cast<std::int32_t>(integer(compute));
    attikos_gemm_gradients gradients = ATTIKOS_GEMM_GRADIENTS_INIT;
    std::optional<Result> da;
    std::optional<Result> db;
    expect(flag(wants_a) != 0 || flag(wants_b) != 0);
    if (flag(wants_a) != 0)
      gradients.da = da.emplace(Any(), x.device(), x.type(), x.shape(), x.rank()).get();
    if (flag(wants_b) != 0)
      gradients.db = db.emplace(Any(), y.device(), y.type(), y.shape(), y.rank()).get();
    expect_success(attikos_gemm_backward(context_of(x.device()), x.get(), y.get(), given.get(),
                                         &gradients, &options));
    if (da && db) return da->finish({&*db});
    return (da ? *da : *db).finish();
  });
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(gemm, gemm);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(gemm_backward, gemm_backward);

}  // namespace attikos::python
