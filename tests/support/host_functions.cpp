// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls of everything that uses instructions chosen at run time, compiled for any processor of the
// family: check_host_objects.py reads the object.
#include <attikos/attention/attention.hpp>
#include <attikos/attention/attention_backward.hpp>
#include <attikos/gemm/gemm.hpp>

namespace {

template <class A, class C>
void multiply(void* a, void* b, void* c) {
  using Kokkos::View, Kokkos::HostSpace, Kokkos::LayoutRight;
  attikos::gemm(Kokkos::DefaultHostExecutionSpace(),
                View<A const**, LayoutRight, HostSpace>(static_cast<A*>(a), 64, 64),
                View<A const**, LayoutRight, HostSpace>(static_cast<A*>(b), 64, 64),
                View<C**, LayoutRight, HostSpace>(static_cast<C*>(c), 64, 64));
}

template <class T>
void attend(void* a, void* b, void* c) {
  using Tensor = Kokkos::View<T***, Kokkos::LayoutRight, Kokkos::HostSpace>;
  Tensor const q(static_cast<T*>(a), 1, 64, 64), k(static_cast<T*>(b), 1, 64, 64),
      out(static_cast<T*>(c), 1, 64, 64);
  attikos::attention(Kokkos::DefaultHostExecutionSpace(), q, k, k, out);
  Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace> const lse(static_cast<float*>(a), 1,
                                                                          64);
  attikos::attention_backward(Kokkos::DefaultHostExecutionSpace(), q, k, k, out, lse, out, q, k, k);
}

}  // namespace

void attikos_host_functions(void* a, void* b, void* c) {
  attend<attikos::bfloat16>(a, b, c);
  multiply<attikos::bfloat16, attikos::bfloat16>(a, b, c);
  multiply<std::int8_t, std::int32_t>(a, b, c);
  multiply<float, float>(a, b, c);
  multiply<double, double>(a, b, c);
}
