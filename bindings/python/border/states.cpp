// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What joins results of attention over disjoint sets of keys.
#include <tvm/ffi/function.h>

#include "call.hpp"

namespace attikos::python {
namespace {

/// The merged state, and its log-sum-exp by more(). Both places may be those of the first state,
/// which is written over then.
Any merge_states(AnyView out_a, AnyView lse_a, AnyView out_b, AnyView lse_b, AnyView out,
                 AnyView lse) {
  return unless_declined([&] {
    Array const first(out_a);
    Array const first_sums(lse_a);
    Array const second(out_b);
    Array const second_sums(lse_b);
    expect(first.is_floating() && first.rank() >= 1);
    expect(first_sums.given() && second.given() && second_sums.given());
    expect_together(first, first_sums, second, second_sums);
    std::uint8_t const bits = first.dtype() == ATTIKOS_FLOAT64 ? 64 : 32;
    Result merged(out, first.device(), first.type(), first.shape(), first.rank());
    Result sums(lse, first.device(), DLDataType{kDLFloat, bits, 1}, first.shape(),
                first.rank() - 1);
    expect_together(first, merged.seen(), sums.seen());
    merged.expect_like(first);
    expect_success(attikos_merge_states(context_of(first.device()), first.get(), first_sums.get(),
                                        second.get(), second_sums.get(), merged.get(), sums.get()));
    return merged.finish({&sums});
  });
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(merge_states, merge_states);

}  // namespace attikos::python
