// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The portable kernels on a device as C functions, for portable_torch.py: PyTorch's tensors reach
// them in the process and stream of their peers. Kokkos starts with the first call.
#include <Kokkos_Core.hpp>
#include <attikos/attikos.hpp>
#include <cstdint>

#include "portable_call.hpp"

namespace {

using namespace attikos;
using namespace attikos_perf;

/// A bias by distance that a functor computes, with positions as it takes them.
template <class Position>
struct Distance {
  template <class A>
  KOKKOS_INLINE_FUNCTION A operator()(A s, Position, Position, Position i, Position j) const {
    return s + A(0.01) * static_cast<A>(i - j);
  }
  template <class A>
  KOKKOS_INLINE_FUNCTION A derivative(A, Position, Position, Position, Position) const {
    return A(1);
  }
};

}  // namespace

/// Attention of q, k, v [batch, heads, positions, features] scaled by 1/sqrt(head_dim), and, where
/// `gradients` is not null, dq, dk and dv of dout in place of it. `tensors`: q, k, v, out, dout,
/// dq, dk, dv, of which the last four are for gradients; `strides` four of each. `lse` [batch,
/// heads, positions] is dense, of float32, or float64 for that type.
extern "C" int attikos_perf_portable_attention(char const* type, void* const* tensors, void* lse,
                                               std::int64_t const* extents,
                                               std::int64_t const* strides, int gradients,
                                               int causal, int functor, void* stream,
                                               char const** reason) {
  // batch, heads of q, heads of k, positions of q, positions of k, head_dim
  std::int64_t const of_q[] = {extents[0], extents[1], extents[3], extents[5]};
  std::int64_t const of_k[] = {extents[0], extents[2], extents[4], extents[5]};
  AttentionOptions const options{.causal = causal != 0, .kernel = "portable"};
  return on_stream(stream, reason, [&](Exec const& exec) {
    with_type(type, [&]<class T>(T) {
      auto const at = [&]<class E>(E*, int which, std::int64_t const* of) {
        return tensor<E>(tensors[which], of, strides + 4 * which);
      };
      T const* const in = nullptr;
      T* const to = nullptr;
      using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
      Kokkos::View<Sum***, Kokkos::LayoutRight, Exec::memory_space, Kokkos::MemoryUnmanaged> const
          sums(static_cast<Sum*>(lse), extents[0], extents[1], extents[3]);
      auto const run = [&](auto const&... extras) {
        if (gradients != 0)
          attention_backward(exec, at(in, 0, of_q), at(in, 1, of_k), at(in, 2, of_k),
                             at(in, 3, of_q), sums, at(in, 4, of_q), at(to, 5, of_q),
                             at(to, 6, of_k), at(to, 7, of_k), options, extras...);
        else
          attention(exec, at(in, 0, of_q), at(in, 1, of_k), at(in, 2, of_k), at(to, 3, of_q), sums,
                    options, extras...);
      };
      if (functor == 0) {
        run();
      } else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, bfloat16>) {
        if (functor == 32)
          run(score(Distance<int>{}));
        else
          run(score(Distance<std::int64_t>{}));
      } else {
        detail::raise<UnsupportedError>("a functor of ", type, "; expected float32 or bfloat16");
      }
    });
  });
}
