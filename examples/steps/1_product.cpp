// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Step 1: a product, with what a layer puts behind it done in the same kernel.
#include <attikos/attikos.hpp>
#include <cstdio>

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Kokkos::DefaultExecutionSpace const exec;  // any instance; calls are asynchronous on it
  Kokkos::View<float**> x("x", 64, 128), weight("weight", 256, 128), y("y", 64, 256);
  Kokkos::View<float*> bias("bias", 256);
  Kokkos::deep_copy(exec, x, 0.5f);
  Kokkos::deep_copy(exec, weight, 0.25f);
  Kokkos::deep_copy(exec, bias, -20.0f);

  // y = relu(2·x·weightᵀ + bias), that is 2·128·0.125 − 20 = 12.
  attikos::gemm(exec, x, weight, y,
                {.alpha = 2, .trans_b = true, .activation = attikos::Activation::relu},
                attikos::bias(bias));

  // Any strides: the first half of the features, into some columns of y.
  auto const half = std::pair(0, 64);
  attikos::gemm(exec, Kokkos::subview(x, Kokkos::ALL, half),
                Kokkos::subview(weight, std::pair(0, 16), half),
                Kokkos::subview(y, Kokkos::ALL, std::pair(0, 16)), {.trans_b = true});
  exec.fence();

  auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), y);
  std::printf("a layer gives %g, half of the features %g\n", double(host(63, 255)),
              double(host(0, 0)));
  // Which kernel that was; `rejected` says why no other.
  attikos::Explanation const why =
      attikos::explain(attikos::op::gemm, exec, x, weight, y, {.trans_b = true});
  std::printf("by %s\n", why.kernel.c_str());
}
